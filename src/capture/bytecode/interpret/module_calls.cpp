// What nn.Module does in Python whenever it is called: before forward() comes, two functions ask
// whether there are hooks. That is a large part of the instructions of most models' first call, so
// what they read is written down at once where it is plain (values/module_state.cpp does the same
// for attributes). The frames are there as ever.
#include <opcode.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/interpret/follow.h"
#include "capture/bytecode/interpret/instruction_handlers.h"
#include "capture/bytecode/values/module_state.h"

namespace smelt::bytecode {
namespace {

PyObject* intern(const char* text) { return PyUnicode_InternFromString(text); }

// The names that the code loads up to its CALL_FUNCTION_EX number `which`, and where that is.
struct Loads {
  std::vector<std::string> names;
  int call = -1;
};

Loads loads_of(PyCodeObject* code, int which) {
  Loads loads;
  const Instructions instructions = instructions_of(code);
  for (int unit = 0; unit < instructions.units; ++unit) {
    const int opcode = instructions.bytes[2 * unit], argument = instructions.bytes[2 * unit + 1];
    int index = -1;
    if (opcode == EXTENDED_ARG) return {};
    if (opcode == LOAD_GLOBAL) index = argument >> 1;
#if PY_VERSION_HEX < 0x030C0000
    if (opcode == LOAD_ATTR || opcode == LOAD_METHOD) index = argument;
#else
    if (opcode == LOAD_ATTR) index = argument >> 1;
#endif
    if (index >= PyTuple_GET_SIZE(code->co_names)) return {};
    if (index >= 0) loads.names.push_back(text_of(PyTuple_GET_ITEM(code->co_names, index)));
    if (opcode != CALL_FUNCTION_EX || --which > 0) continue;
    loads.call = unit;
    return loads;
  }
  return {};
}

// Code of nn.Module's that is known to do what is done here in its place.
struct ModuleCode {
  PyCodeObject* outer = nullptr;  // _wrapped_call_impl
  PyCodeObject* inner = nullptr;  // _call_impl
  int outer_call = -1, inner_call = -1;
};

bool takes_anything(PyCodeObject* code) {
  return code->co_argcount == 1 && code->co_kwonlyargcount == 0 &&
         (code->co_flags & CO_VARARGS) != 0 && (code->co_flags & CO_VARKEYWORDS) != 0;
}

ModuleCode find_module_code() {
  ModuleCode found;
  PyCodeObject* outer = code_of_module("_wrapped_call_impl");
  PyCodeObject* inner = code_of_module("_call_impl");
  if (outer == nullptr || inner == nullptr || !takes_anything(outer) || !takes_anything(inner))
    return found;
  const Loads outer_loads = loads_of(outer, 2), inner_loads = loads_of(inner, 1);
  const std::vector<std::string> outer_names{"_compiled_call_impl", "_compiled_call_impl",
                                             "_call_impl"};
  const std::vector<std::string> inner_names{"torch",
                                             "_C",
                                             "_get_tracing_state",
                                             "_slow_forward",
                                             "forward",
                                             "_backward_hooks",
                                             "_backward_pre_hooks",
                                             "_forward_hooks",
                                             "_forward_pre_hooks",
                                             "_global_backward_pre_hooks",
                                             "_global_backward_hooks",
                                             "_global_forward_hooks",
                                             "_global_forward_pre_hooks"};
  if (outer_loads.names == outer_names && inner_loads.names == inner_names) {
    found.outer = outer;
    found.inner = inner;
    found.outer_call = outer_loads.call;
    found.inner_call = inner_loads.call;
  }
  for (PyCodeObject* code : {found.outer, found.inner})
    Py_XINCREF(reinterpret_cast<PyObject*>(code));
  return found;
}

const ModuleCode& module_code() {
  static const ModuleCode found = find_module_code();
  return found;
}

bool is_empty_dict(PyObject* object) {
  return is_plain_dict(object) && PyDict_GET_SIZE(object) == 0;
}

// The four kinds of hooks that a module has, and those that all modules have.
struct HookNames {
  PyObject* own[4] = {intern("_backward_hooks"), intern("_backward_pre_hooks"),
                      intern("_forward_hooks"), intern("_forward_pre_hooks")};
  PyObject* global[4] = {intern("_global_backward_pre_hooks"), intern("_global_backward_hooks"),
                         intern("_global_forward_hooks"), intern("_global_forward_pre_hooks")};
};

// Whether nothing is to be called but forward(). If so, that is written down.
bool has_no_hooks(Trace& trace, Value self, PyObject* globals) {
  static const HookNames hooks;
  PyTypeObject* type = Py_TYPE(self.object);
  const Object dict = plain_dict_of(self.object);
  if (!dict || !PyDict_CheckExact(globals)) return false;
  for (PyObject* name : hooks.own)
    if (!is_empty_dict(PyDict_GetItemWithError(dict.get(), name)) ||
        _PyType_Lookup(type, name) != nullptr)
      return false;
  for (PyObject* name : hooks.global)
    if (!is_empty_dict(PyDict_GetItemWithError(globals, name))) return false;
  trace.guard_type(self);
  const Value own{dict.get(), trace.read(NodeKind::instance_dict, self, nullptr, 0, dict.get())};
  const auto note = [&](Value place, PyObject* name) {
    PyObject* found = PyDict_GetItemWithError(place.object, name);
    trace.guard_truth({found, trace.read_dict(place, name, found)}, false);
  };
  for (PyObject* name : hooks.own) {
    trace.read_type(type, name, nullptr);
    note(own, name);
  }
  for (PyObject* name : hooks.global) note({globals, 0}, name);
  return trace.active();
}

// It has the class's _compiled_call_impl, None.
bool is_not_compiled(Trace& trace, Value self) {
  static PyObject* name = intern("_compiled_call_impl");
  PyTypeObject* type = Py_TYPE(self.object);
  const Object dict = plain_dict_of(self.object);
  if (!dict || _PyType_Lookup(type, name) != Py_None ||
      PyDict_GetItemWithError(dict.get(), name) != nullptr)
    return false;
  trace.guard_type(self);
  const Ref ref = trace.read_type(type, name, Py_None);
  trace.guard_same({Py_None, ref});
  trace.read_absent({dict.get(), trace.read(NodeKind::instance_dict, self, nullptr, 0, dict.get())},
                    name);
  return trace.active();
}

}  // namespace

// torch._C._get_tracing_state() gives None.
bool InstructionHandlers::is_scripting() {
  static PyObject *torch = intern("torch"), *native = intern("_C"),
                  *function = intern("_get_tracing_state");
  if (trace_->state.asked_tracing_state) return false;
  Result found;
  if (!find_global(torch, &found) || found.object == nullptr) return true;
  Object held = Object::steal(found.object);
  for (PyObject* name : {native, function}) {
    found = get_attribute(trace_, {held.get(), found.ref}, name);
    if (found.object == nullptr) return true;
    held = Object::steal(found.object);
  }
  const Result state = call(trace_, {held.get(), found.ref}, {}, nullptr);
  const Object value = Object::steal(state.object);
  trace_->state.asked_tracing_state = value.get() == Py_None && trace_->active();
  return !trace_->state.asked_tracing_state;
}

// At the start of a frame. Flow::next with the frame as it was: nothing of the kind. Else what the
// function would do last, the call, has been done.
InstructionHandlers::Flow InstructionHandlers::call_module() {
  static PyObject *inner = intern("_call_impl"), *forward = intern("forward");
  const ModuleCode& known = module_code();
  const bool is_outer = code_ == known.outer;
  if (!is_outer && code_ != known.inner) return Flow::next;
  const Value self = live()->value(at(0).object, at(0).ref);
  PyObject* name = is_outer ? inner : forward;
  PyObject* function = _PyType_Lookup(Py_TYPE(self.object), name);
  if (!has_generic_attributes(Py_TYPE(self.object)) || trace_->is_born(self.object) ||
      self.ref == 0 || function == nullptr || !PyFunction_Check(function))
    return Flow::next;
  if (is_outer ? !is_not_compiled(*trace_, self)
               : is_scripting() || !has_no_hooks(*trace_, self, frame_.globals())) {
    PyErr_Clear();
    return Flow::next;
  }
  Method method;
  if (!get_method(trace_, self, name, &method)) return Flow::error;
  const Object held_function = Object::steal(method.callee.object);
  const Object held_self = Object::steal(method.self.object);
  start_ = running_ = lasti_ = is_outer ? known.outer_call : known.inner_call;
  frame_.set_running(running_);
  const Result result = call_unpacked({method.callee.object, method.callee.ref},
                                      {method.self.object, method.self.ref}, at(1), at(2));
  if (result.object == nullptr) return Flow::error;
  push(result);
  next_ = running_ + 1;
  return Flow::next;
}

}  // namespace smelt::bytecode
