// smelt.compile for Python: the callable that stands in a function's place.
#include <Python.h>
#include <pybind11/stl.h>
#include <structmember.h>

#include <array>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "base/error.h"
#include "binding/binding.h"
#include "binding/compiled_function.h"
#include "binding/python_errors.h"
#include "binding/read_settings.h"
#include "capture/bytecode/interpret/disabled.h"
#include "capture/bytecode/run/hook.h"
#include "diagnostics/clock.h"

namespace py = pybind11;

namespace smelt {

using namespace bytecode;
namespace {

// -- smelt._native.CompiledFunction

CompiledFunction* cast(PyObject* object) { return reinterpret_cast<CompiledFunction*>(object); }

PyObject* run_watched(CompiledFunction* self, PyObject* const* args, size_t nargsf,
                      PyObject* names) {
  self->until_watched = self->watch_every - 1;
  const auto positional = static_cast<Py_ssize_t>(PyVectorcall_NARGS(nargsf));
  const Object watch = Object::share(self->watch);
  const Object tuple = Object::steal(PyTuple_New(positional));
  const Object keywords = Object::steal(PyDict_New());
  if (!tuple || !keywords) return nullptr;
  for (Py_ssize_t i = 0; i < positional; ++i) PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(args[i]));
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i)
    if (PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(names, i), args[positional + i]) < 0)
      return nullptr;
  return PyObject_CallFunctionObjArgs(watch.get(), reinterpret_cast<PyObject*>(self), tuple.get(),
                                      keywords.get(), nullptr);
}

PyObject* run(CompiledFunction* self, PyObject* const* args, size_t nargsf, PyObject* names) {
  if (!self->function) [[unlikely]] {
    PyErr_SetString(PyExc_RuntimeError, "a compiled function was called after it was freed");
    return nullptr;
  }
  // What the function does may drop the last other reference to it.
  const Object alive = Object::share(reinterpret_cast<PyObject*>(self));
  if (self->watch && --self->until_watched < 0) [[unlikely]]
    return run_watched(self, args, nargsf, names);
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
  static const char* const kNames[] = {
      "function",  "original",        "bound",    "settings", "backend", "backend_callable",
      "fullgraph", "recompile_limit", "rollback", "options",  nullptr};
  PyObject *function, *original = nullptr, *bound = Py_None, *settings = Py_None,
                      *callable = Py_None, *options = nullptr;
  const char* backend = "native";
  int fullgraph = 0, recompile_limit = 0, rollback = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOOsOpipO!:CompiledFunction",
                                   const_cast<char**>(kNames), &function, &original, &bound,
                                   &settings, &backend, &callable, &fullgraph, &recompile_limit,
                                   &rollback, &PyDict_Type, &options))
    return nullptr;
  if (!PyFunction_Check(function))
    return PyErr_Format(PyExc_TypeError, "CompiledFunction takes a Python function, not %s",
                        Py_TYPE(function)->tp_name);
  return without_exceptions([&]() -> PyObject* {
    Settings wanted;
    wanted.engine = read_engine(backend);
    wanted.fullgraph = fullgraph;
    wanted.is_limit_given = recompile_limit > 0;
    if (wanted.is_limit_given) wanted.recompile_limit = recompile_limit;
    wanted.rollback = rollback;
    if (options) read_options(options, wanted);
    auto compiled = std::make_shared<Compiled>(
        std::move(wanted), callable != Py_None ? Object::share(callable) : Object());
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
  Py_VISIT(self->watch);
  return self->compiled->traverse(visit, arg);
}

int clear_compiled(PyObject* object) {
  CompiledFunction* self = cast(object);
  Py_CLEAR(self->function);
  Py_CLEAR(self->original);
  Py_CLEAR(self->bound);
  Py_CLEAR(self->settings);
  Py_CLEAR(self->dict);
  Py_CLEAR(self->watch);
  self->compiled->clear();
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
  Py_CLEAR(self->watch);
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
                  "own_sizes"_a = segment.own_sizes, "graph"_a = segment.graph,
                  "ends"_a = segment.ends);
}

py::dict describe(const Break& at) {
  using namespace py::literals;
  return py::dict("reason"_a = at.name(), "sentence"_a = at.sentence(), "remedy"_a = at.remedy(),
                  "file"_a = at.file, "line"_a = at.line, "function"_a = at.function,
                  "module"_a = at.module, "called_at"_a = at.called_at, "text"_a = at.str());
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

PyObject* fixed_sizes(PyObject* self, PyObject*) {
  return without_exceptions(
      [&] { return list_of(std::vector(cast(self)->compiled->fixed_sizes())); });
}

PyObject* rollbacks(PyObject* self, PyObject*) {
  return without_exceptions(
      [&] { return list_of(std::vector(cast(self)->compiled->rollbacks())); });
}

PyObject* reset(PyObject* self, PyObject*) {
  return without_exceptions([&] {
    cast(self)->compiled->reset();
    return Py_NewRef(Py_None);
  });
}

PyObject* set_stance(PyObject* self, PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  if (!text) return nullptr;
  const std::optional<Stance> stance = stance_of(text);
  if (!stance) return PyErr_Format(PyExc_ValueError, "no stance %s", text);
  cast(self)->compiled->set_stance(*stance);
  Py_RETURN_NONE;
}

PyObject* stance(PyObject* self, PyObject*) {
  return PyUnicode_FromString(name_of(cast(self)->compiled->own_stance()));
}

PyObject* set_ahead(PyObject* self, PyObject* is_ahead) {
  cast(self)->compiled->set_ahead(is_ahead == Py_True);
  Py_RETURN_NONE;
}

PyObject* watch(PyObject* self, PyObject* args) {
  PyObject* function;
  int every;
  if (!PyArg_ParseTuple(args, "Oi:_watch", &function, &every)) return nullptr;
  Py_XSETREF(cast(self)->watch, function == Py_None ? nullptr : Py_NewRef(function));
  cast(self)->watch_every = every;
  cast(self)->until_watched = every - 1;
  Py_RETURN_NONE;
}

// -- as functions do

PyObject* return_itself(PyObject* self, PyObject*) { return Py_NewRef(self); }

PyObject* reduce(PyObject* self, PyObject*) {
  const Object module = Object::steal(PyImport_ImportModule("smelt._compile"));
  if (!module) return nullptr;
  return PyObject_CallMethod(module.get(), "reduce_function", "O", self);
}

// torch.jit.script asks for what it is to look at.
PyObject* return_original(PyObject* self, PyObject*) { return Py_NewRef(cast(self)->original); }

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
      {"_rollbacks", rollbacks, METH_NOARGS, "What did not pay, a sentence each."},
      {"_fixed_sizes", fixed_sizes, METH_NOARGS,
       "Sizes that varied and were fixed, a sentence each."},
      {"_reset", reset, METH_NOARGS, "Forgets what was compiled."},
      {"_stance", stance, METH_NOARGS, "Its own stance, or 'as_process'."},
      {"_set_stance", set_stance, METH_O, "Sets its own stance; 'as_process': it has none."},
      {"_set_ahead", set_ahead, METH_O,
       "True: calls are made to compile ahead; no cost is refused."},
      {"_watch", watch, METH_VARARGS, "_watch(f, n): one call in n is f(self, args, kwargs)."},
      {"__copy__", return_itself, METH_NOARGS, nullptr},
      {"__deepcopy__", return_itself, METH_O, nullptr},
      {"__reduce__", reduce, METH_NOARGS, nullptr},
      {"__prepare_scriptable__", return_original, METH_NOARGS, nullptr},
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
  m.def(
      "show_as_call",
      [](const py::type& type, const py::function& function) {
        // In the dict alone: calls go by the slots, as before.
        auto* object = reinterpret_cast<PyTypeObject*>(type.ptr());
        if (PyDict_SetItemString(object->tp_dict, "__call__", function.ptr()) < 0)
          throw py::error_already_set();
        PyType_Modified(object);
      },
      "Makes the function what type.__call__ is for those who look at it.");
  m.def("mark_disabled", [](const py::object& function) { mark_disabled(function.ptr()); });
  m.def("is_disabled", [](const py::object& function) { return is_disabled(function.ptr()); });
  m.def("is_compiling", &is_in_compiled_call);
  m.def("follows_this_python", &follows_this_python);
  m.def("process_stance", [] { return name_of(process_stance); });
  m.def("set_process_stance", [](const std::string& name) {
    const std::optional<Stance> stance = stance_of(name);
    if (!stance || *stance == Stance::as_process) throw py::value_error("no stance " + name);
    process_stance = *stance;
  });
  m.def("set_clock", [](const py::object& clock) {
    if (clock.is_none()) return set_clock({});
    set_clock([clock] {
      const py::gil_scoped_acquire gil;
      const py::error_scope raised;  // which is on its way while somebody looks
      return clock().cast<int64_t>();
    });
  });
  m.def(
      "use_cpu_clock", [] { set_clock(&thread_cpu_ns); },
      "Decisions are made by what threads compute, and not by how long they wait for a processor.");
}

}  // namespace smelt
