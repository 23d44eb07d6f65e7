// warnings.warn(text): given again by each cached call, with the line that it was given for, under
// the filters that code has set up to there (warnings.catch_warnings and simplefilter are
// followed).
#include <string>

#include "capture/bytecode/builtins/builtin_call.h"

namespace smelt::bytecode {
namespace {

struct Warning {
  PyObject* text = nullptr;
  PyObject* category = PyExc_UserWarning;
  long level = 1;
};

// False: not one of these, or an error.
bool read_arguments(const BuiltinCall& c, Warning* warning) {
  for (size_t i = 0; i < c.count(); ++i) {
    PyObject* given = c.argument(i).object;
    const std::string name = i < c.positional() ? std::string(i == 0   ? "message"
                                                              : i == 1 ? "category"
                                                              : i == 2 ? "stacklevel"
                                                                       : "")
                                                : text_of(c.keyword(i - c.positional()));
    if (name == "message" && PyUnicode_CheckExact(given))
      warning->text = given;
    else if (name == "category" && (given == Py_None || PyType_Check(given)))
      warning->category = given == Py_None ? PyExc_UserWarning : given;
    else if (name == "stacklevel" && PyLong_CheckExact(given))
      warning->level = PyLong_AsLong(given);
    else
      return false;
  }
  return warning->text != nullptr && warning->level >= 1 &&
         PyObject_IsSubclass(warning->category, PyExc_Warning) == 1;
}

bool is_of_importing(PyCodeObject* code) {
  const std::string file = text_of(code->co_filename);
  return file.find("importlib") != std::string::npos;
}

// The frame that the warning is about; empty if it is one that called the compiled function.
Object frame_at(const Trace& trace, long level) {
  Object frame = Object::share(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  for (; frame && level > 1; --level) {
    auto* here = reinterpret_cast<PyFrameObject*>(frame.get());
    const Object code = Object::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(here)));
    if (code.get() == trace.code.get() ||
        is_of_importing(reinterpret_cast<PyCodeObject*>(code.get())))
      return {};
    frame = Object::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(here)));
  }
  return frame;
}

// What decides what is done with warnings: none of them is an error while it is the same.
void guard_filters(Trace& trace) {
  const Object module = Object::steal(PyImport_ImportModule("warnings"));
  const Object function = Object::steal(PyImport_ImportModule("_warnings"));
  if (!module || !function) return;
  trace.hold(module.get());
  const Value space{PyModule_GetDict(module.get()), 0};
  for (const char* name : {"filters", "defaultaction"}) {
    const Object key = Object::steal(PyUnicode_InternFromString(name));
    PyObject* found = PyDict_GetItemWithError(space.object, key.get());
    if (found == nullptr)
      trace.stop(BreakReason::output, "warnings.warn");
    else
      trace.use({found, trace.read_dict(space, key.get(), found)});
  }
  // A list that takes warnings (catch_warnings(record=True)) and that the trace knows would change
  // unseen.
  PyObject* shown_by = PyDict_GetItemString(space.object, "_showwarnmsg_impl");
  if (shown_by != nullptr && PyCFunction_Check(shown_by) &&
      PyCFunction_GET_SELF(shown_by) != nullptr && trace.is_tracked(PyCFunction_GET_SELF(shown_by)))
    trace.stop(BreakReason::output, "warnings.warn");
}

PyObject* warn_explicit() {
  static PyObject* const function = [] {
    const Object module = Object::steal(PyImport_ImportModule("_warnings"));
    return PyObject_GetAttrString(module.get(), "warn_explicit");
  }();
  return function;
}

// Of the module: what has been warned of already.
Object registry_of(PyObject* space) {
  Object name = Object::steal(PyUnicode_InternFromString("__warningregistry__"));
  if (PyDict_GetItemWithError(space, name.get()) == nullptr) {
    const Object made = Object::steal(PyDict_New());
    PyDict_SetItem(space, name.get(), made.get());
  }
  return Object::share(PyDict_GetItemWithError(space, name.get()));
}

bool call_warn(BuiltinCall& c, Result* result) {
  Warning warning;
  for (const Value& v : c.arguments)
    if (!is_constant(v.object)) return false;
  if (!read_arguments(c, &warning)) return false;
  const Object frame = frame_at(c.trace, warning.level);
  if (!frame) return false;
  for (const Value& v : c.arguments) c.trace.use(v);
  guard_filters(c.trace);
  auto* place = reinterpret_cast<PyFrameObject*>(frame.get());
  const Object code = Object::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(place)));
  const Object space = Object::steal(PyFrame_GetGlobals(place));
  const Object line = Object::steal(PyLong_FromLong(PyFrame_GetLineNumber(place)));
  PyObject* name = PyDict_GetItemString(space.get(), "__name__");
  const Object registry = registry_of(space.get());
  if (name == nullptr || !PyUnicode_CheckExact(name) || !registry || !c.trace.active())
    return false;
  c.trace.hold(registry.get());
  const Value inputs[] = {{warn_explicit(), 0},
                          {warning.text, 0},
                          {warning.category, 0},
                          {reinterpret_cast<PyCodeObject*>(code.get())->co_filename, 0},
                          {line.get(), 0},
                          {name, 0},
                          {registry.get(), c.trace.object_behind(registry.get())}};
  c.trace.effect_call(inputs, nullptr);
  {
    const Unfollowed unfollowed(&c.trace, false, Trust::everybody);  // what shows it
    result->object = call_plainly(warn_explicit(), std::span(inputs).subspan(1), nullptr);
  }
  if (result->object == nullptr) c.trace.stop(BreakReason::raised, "warnings.warn");
  return true;
}

// warnings.filters is another list, or has changed: C's own account of what was warned of is void.
bool note_mutation(BuiltinCall& c, Result* result) {
  if (c.count() > 0) return false;
  c.trace.effect_call(std::span(&c.callee, 1), nullptr);
  result->object = call_plainly(c.callee.object, {}, nullptr);
  return true;
}

}  // namespace

bool call_warnings(BuiltinCall& c, std::string_view name, Result* result) {
  if (name == "warn") return call_warn(c, result);
  return name == "_filters_mutated" && note_mutation(c, result);
}

}  // namespace smelt::bytecode
