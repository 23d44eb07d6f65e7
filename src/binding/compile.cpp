// smelt.compile for Python: the callable that stands in a function's place.
#include <Python.h>
#include <structmember.h>
#include <torch/csrc/Exceptions.h>

#include <array>
#include <memory>
#include <new>

#include "base/error.h"
#include "binding/binding.h"
#include "binding/compiled_function.h"

namespace py = pybind11;

namespace smelt {

using namespace bytecode;
namespace {

// The C++ exception that is being handled, as a Python error.
void set_python_error() {
  const auto set = [](const char* type, const std::exception& error) {
    const Object module = Object::steal(PyImport_ImportModule("smelt._native"));
    const Object found =
        Object::steal(module ? PyObject_GetAttrString(module.get(), type) : nullptr);
    if (found) PyErr_SetString(found.get(), error.what());
  };
  try {
    throw;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const BreakError& error) {
    set("BreakError", error);
  } catch (const RecordError& error) {
    set("RecordError", error);
  } catch (const Error& error) {
    set("Error", error);
  } catch (const InternalError& error) {
    set("InternalError", error);
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
  }
}

// What `body` returns; nullptr with a Python error set if it throws.
template <class Body>
PyObject* without_exceptions(Body body) {
  try {
    return body();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

// -- smelt._native.CompiledFunction

CompiledFunction* cast(PyObject* object) { return reinterpret_cast<CompiledFunction*>(object); }

PyObject* run(CompiledFunction* self, PyObject* const* args, size_t nargsf, PyObject* names) {
  if (!self->function) [[unlikely]] {
    PyErr_SetString(PyExc_RuntimeError, "a compiled function was called after it was freed");
    return nullptr;
  }
  return without_exceptions(
      [&] { return self->compiled->call(self->function, args, nargsf, names); });
}

}  // namespace

PyTypeObject* compiled_function_type = nullptr;

PyObject* run_with_first(CompiledFunction* self, PyObject* first, PyObject* const* args,
                         size_t skip, size_t nargsf, PyObject* names) {
  const size_t positional = PyVectorcall_NARGS(nargsf) - skip;
  const size_t count = positional + (names ? PyTuple_GET_SIZE(names) : 0);
  std::array<PyObject*, 10> few;
  std::unique_ptr<PyObject*[]> many;
  PyObject** all = few.data();
  if (count + 2 > few.size()) {
    many.reset(new (std::nothrow) PyObject*[count + 2]);
    if (!many) return PyErr_NoMemory();
    all = many.get();
  }
  all[0] = nullptr;  // PY_VECTORCALL_ARGUMENTS_OFFSET: the callee may use it
  all[1] = first;
  std::copy_n(args + skip, count, all + 2);
  return run(self, all + 1, (positional + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

namespace {

PyObject* call_compiled(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names) {
  CompiledFunction* self = cast(object);
  return self->bound ? run_with_first(self, self->bound, args, 0, nargsf, names)
                     : run(self, args, nargsf, names);
}

PyObject* new_compiled(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* const kNames[] = {"function",        "original",         "bound", "settings",
                                       "backend",         "backend_callable", "mode",  "fullgraph",
                                       "recompile_limit", "tuning",           nullptr};
  PyObject *function, *original = nullptr, *bound = Py_None, *settings = Py_None,
                      *callable = Py_None;
  const char *backend = "native", *tuning = "";
  int mode = 0, fullgraph = 0, recompile_limit = CompileOptions().recompile_limit;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOOsOipis:CompiledFunction",
                                   const_cast<char**>(kNames), &function, &original, &bound,
                                   &settings, &backend, &callable, &mode, &fullgraph,
                                   &recompile_limit, &tuning))
    return nullptr;
  if (!PyFunction_Check(function))
    return PyErr_Format(PyExc_TypeError, "CompiledFunction takes a Python function, not %s",
                        Py_TYPE(function)->tp_name);
  return without_exceptions([&]() -> PyObject* {
    CompileOptions options;
    options.backend = backend;
    options.tuning = tuning;
    if (callable != Py_None) options.backend_callable = Object::share(callable);
    options.mode = mode;
    options.fullgraph = fullgraph;
    options.recompile_limit = recompile_limit;
    auto compiled = std::make_shared<Compiled>(std::move(options));
    PyObject* object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    CompiledFunction* self = cast(object);
    new (&self->compiled) std::shared_ptr<Compiled>(std::move(compiled));
    self->vectorcall = call_compiled;
    self->function = Py_NewRef(function);
    self->original = Py_NewRef(original ? original : function);
    if (bound != Py_None) self->bound = Py_NewRef(bound);
    self->settings = Py_NewRef(settings);
    return object;
  });
}

int traverse_compiled(PyObject* object, visitproc visit, void* arg) {
  const CompiledFunction* self = cast(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->function);
  Py_VISIT(self->original);
  Py_VISIT(self->bound);
  Py_VISIT(self->settings);
  Py_VISIT(self->dict);
  // While a call runs, somebody else holds the segments too, and what they hold is no cycle's.
  if (self->compiled.use_count() == 1) return self->compiled->traverse(visit, arg);
  return 0;
}

int clear_compiled(PyObject* object) {
  CompiledFunction* self = cast(object);
  Py_CLEAR(self->function);
  Py_CLEAR(self->original);
  Py_CLEAR(self->bound);
  Py_CLEAR(self->settings);
  Py_CLEAR(self->dict);
  if (self->compiled.use_count() == 1) self->compiled->clear();
  return 0;
}

void free_compiled(PyObject* object) {
  CompiledFunction* self = cast(object);
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (self->weak_references) PyObject_ClearWeakRefs(object);
  // The segments go after the object can't be reached any more: freeing what they hold runs code.
  const std::shared_ptr<Compiled> compiled = std::move(self->compiled);
  self->compiled.~shared_ptr();
  Py_CLEAR(self->function);
  Py_CLEAR(self->original);
  Py_CLEAR(self->bound);
  Py_CLEAR(self->settings);
  Py_CLEAR(self->dict);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* bind_to_instance(PyObject* object, PyObject* instance, PyObject*) {
  if (!instance || instance == Py_None || cast(object)->bound) return Py_NewRef(object);
  return PyMethod_New(object, instance);
}

PyObject* show_compiled(PyObject* object) {
  return PyUnicode_FromFormat("<smelt.compile of %R>", cast(object)->original);
}

// -- reports

py::dict describe(const SegmentReport& segment) {
  using namespace py::literals;
  return py::dict("function"_a = segment.function, "file"_a = segment.file, "line"_a = segment.line,
                  "offset"_a = segment.offset, "ops"_a = segment.ops, "guards"_a = segment.guards,
                  "steps"_a = segment.steps, "guard_lines"_a = segment.guard_lines,
                  "graph"_a = segment.graph, "ends"_a = segment.ends);
}

py::dict describe(const Break& at) {
  using namespace py::literals;
  return py::dict("reason"_a = at.name(), "sentence"_a = at.sentence(), "remedy"_a = at.remedy(),
                  "file"_a = at.file, "line"_a = at.line, "function"_a = at.function,
                  "text"_a = at.str());
}

py::str describe(const std::string& text) { return text; }

template <class Rows>
PyObject* list_of(const Rows& rows) {
  py::list list;
  for (const auto& row : rows) list.append(describe(row));
  return list.release().ptr();
}

PyObject* segments(PyObject* self, PyObject*) {
  return without_exceptions([&] { return list_of(cast(self)->compiled->segments()); });
}

PyObject* breaks(PyObject* self, PyObject*) {
  // A copy: making Python objects may let another thread run, which adds to them.
  return without_exceptions([&] { return list_of(std::vector(cast(self)->compiled->breaks())); });
}

PyObject* recompiles(PyObject* self, PyObject*) {
  return without_exceptions(
      [&] { return list_of(std::vector(cast(self)->compiled->recompiles())); });
}

PyObject* reset(PyObject* self, PyObject*) {
  return without_exceptions([&] {
    cast(self)->compiled->reset();
    return Py_NewRef(Py_None);
  });
}

// -- as functions do

PyObject* return_itself(PyObject* self, PyObject*) { return Py_NewRef(self); }

PyObject* reduce(PyObject* self, PyObject*) {
  const Object module = Object::steal(PyImport_ImportModule("smelt._compile"));
  if (!module) return nullptr;
  return PyObject_CallMethod(module.get(), "reduce_function", "O", self);
}

// What a function keeps in fields of its own is read from and written to the function.
PyObject* get_of_function(PyObject* self, void* name) {
  return PyObject_GetAttrString(cast(self)->original, static_cast<const char*>(name));
}

int set_of_function(PyObject* self, PyObject* value, void* name) {
  return PyObject_SetAttrString(cast(self)->original, static_cast<const char*>(name), value);
}

PyGetSetDef of_function(const char* name) {
  return {name, get_of_function, set_of_function, nullptr, const_cast<char*>(name)};
}

PyTypeObject* make_compiled_function_type(PyObject* module) {
  static PyMethodDef methods[] = {
      {"_segments", segments, METH_NOARGS, "What was compiled, a dict per segment."},
      {"_breaks", breaks, METH_NOARGS, "Where graphs ended and why, a dict each."},
      {"_recompiles", recompiles, METH_NOARGS, "Which guard failed, a sentence per recompile."},
      {"_reset", reset, METH_NOARGS, "Forgets what was compiled."},
      {"__copy__", return_itself, METH_NOARGS, nullptr},
      {"__deepcopy__", return_itself, METH_O, nullptr},
      {"__reduce__", reduce, METH_NOARGS, nullptr},
      {}};
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledFunction, vectorcall), READONLY,
       nullptr},
      {"__dictoffset__", T_PYSSIZET, offsetof(CompiledFunction, dict), READONLY, nullptr},
      {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledFunction, weak_references), READONLY,
       nullptr},
      {"_function", T_OBJECT, offsetof(CompiledFunction, function), READONLY, nullptr},
      {"_original", T_OBJECT, offsetof(CompiledFunction, original), READONLY, nullptr},
      {"_bound", T_OBJECT, offsetof(CompiledFunction, bound), READONLY, nullptr},
      {"_settings", T_OBJECT, offsetof(CompiledFunction, settings), READONLY, nullptr},
      {}};
  static PyGetSetDef properties[] = {
      {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
      of_function("__code__"),
      of_function("__defaults__"),
      of_function("__kwdefaults__"),
      of_function("__globals__"),
      of_function("__closure__"),
      {}};
  static PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>("A function that smelt runs; made by smelt.compile.")},
      {Py_tp_new, reinterpret_cast<void*>(new_compiled)},
      {Py_tp_dealloc, reinterpret_cast<void*>(free_compiled)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse_compiled)},
      {Py_tp_clear, reinterpret_cast<void*>(clear_compiled)},
      {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
      {Py_tp_descr_get, reinterpret_cast<void*>(bind_to_instance)},
      {Py_tp_repr, reinterpret_cast<void*>(show_compiled)},
      {Py_tp_methods, methods},
      {Py_tp_members, members},
      {Py_tp_getset, properties},
      {}};
  static PyType_Spec spec = {"smelt._native.CompiledFunction", sizeof(CompiledFunction), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                                 Py_TPFLAGS_METHOD_DESCRIPTOR,
                             slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, nullptr));
}

}  // namespace

void bind_compile(py::module_& m) {
  compiled_function_type = make_compiled_function_type(m.ptr());
  PyTypeObject* instance_call_type = make_instance_call_type(m.ptr());
  if (!compiled_function_type || PyModule_AddType(m.ptr(), compiled_function_type) ||
      !instance_call_type || PyModule_AddType(m.ptr(), instance_call_type))
    throw py::error_already_set();
  m.def("mark_disabled", [](const py::object& function) { mark_disabled(function.ptr()); });
  m.def("is_disabled", [](const py::object& function) { return is_disabled(function.ptr()); });
  m.def("is_tracing", &is_tracing);
  m.def("follows_this_python", &follows_this_python);
}

}  // namespace smelt
