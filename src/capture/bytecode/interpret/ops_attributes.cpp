// Attributes, super() and imports.
#include <opcode.h>

#include <optional>
#include <string_view>

#include "capture/bytecode/interpret/instruction_handlers.h"
#include "capture/bytecode/values/dynamic_tensors.h"

namespace smelt::bytecode {
namespace {

// builtins.__import__ as CPython made it.
bool is_original_import(PyObject* function) {
  return PyCFunction_Check(function) &&
         std::string_view(reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name) ==
             "__import__";
}

PyObject* import_module(PyObject* import, PyObject* name, Frame frame, PyObject* from_list,
                        PyObject* level) {
  PyObject* locals = frame.names() != nullptr ? frame.names() : Py_None;
  if (is_original_import(import)) {
    const int number = static_cast<int>(PyLong_AsLong(level));
    if (number == -1 && PyErr_Occurred() != nullptr) return nullptr;
    return PyImport_ImportModuleLevelObject(name, frame.globals(), locals, from_list, number);
  }
  PyObject* arguments[] = {name, frame.globals(), locals, from_list, level};
  return PyObject_Vectorcall(import, arguments, 5, nullptr);
}

// "a" of "a.b.c".
Object top_package(PyObject* name) {
  const Py_ssize_t dot = PyUnicode_FindChar(name, '.', 0, PyUnicode_GET_LENGTH(name), 1);
  return dot < 0 ? Object::share(name) : Object::steal(PyUnicode_Substring(name, 0, dot));
}

}  // namespace

InstructionHandlers::Flow InstructionHandlers::load_attribute(int index) {
  const Value object = peek(1);
  if (live() != nullptr && tensors().is_tensor(object.object) &&
      PyUnicode_CompareWithASCIIString(name(index), "shape") == 0) {
    // tensor.shape[0]: one size of a shape that depends on contents can be a number of the program.
    int unit = next_;
    const auto behind_caches = [&] {
      while (unit < units_ && bytes_[2 * unit] == CACHE) ++unit;
      return unit < units_ ? bytes_[2 * unit] : CACHE;
    };
    if (behind_caches() == LOAD_CONST && PyLong_CheckExact(constant(bytes_[2 * unit + 1]))) {
      const long dimension = PyLong_AsLong(constant(bytes_[2 * unit + 1]));
      PyErr_Clear();
      ++unit;
      const bool asks = behind_caches() == BINARY_SUBSCR && dimension >= -64 && dimension < 64;
      const std::optional<Result> size =
          asks ? read_size(*trace_, object, static_cast<int>(dimension)) : std::nullopt;
      if (size) {
        ++unit;
        behind_caches();
        next_ = unit;
        return replace(1, *size);
      }
    }
  }
  return replace(1, get_attribute(trace_, object, name(index)));
}

InstructionHandlers::Flow InstructionHandlers::load_method(int index) {
  Method method;
  if (!get_method(trace_, peek(1), name(index), &method)) return Flow::error;
  drop(1);
  if (method.self.object != nullptr) {
    push(method.callee);
    push(method.self);
  } else {
    push(nullptr, 0);
    push(method.callee);
  }
  return Flow::next;
}

// On the stack: super, the class, self.
InstructionHandlers::Flow InstructionHandlers::load_super_attribute(int index, bool as_method,
                                                                    bool two_arguments) {
  const Value callee = peek(3);
  std::vector<Value> arguments;
  // The real super() without arguments would take just these from the frame.
  if (two_arguments || callee.object == reinterpret_cast<PyObject*>(&PySuper_Type))
    arguments = top_values(2);
  const Result super = call(trace_, callee, arguments, nullptr);
  if (super.object == nullptr) return Flow::error;
  const Object holder = Object::steal(super.object);
  const Result found = get_attribute(trace_, {super.object, super.ref}, name(index));
  if (found.object == nullptr) return Flow::error;
  drop(3);
  if (as_method) push(nullptr, 0);
  push(found);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::store_attribute(int index) {
  return done(2, set_attribute(trace_, peek(1), name(index), peek(2)));
}

InstructionHandlers::Flow InstructionHandlers::delete_attribute(int index) {
  return done(1, set_attribute(trace_, peek(1), name(index), {}));
}

InstructionHandlers::Flow InstructionHandlers::load_build_class() {
  static PyObject* key = PyUnicode_InternFromString("__build_class__");
  Result found;
  found.object = Py_XNewRef(PyDict_GetItemWithError(frame_.builtins(), key));
  if (found.object == nullptr) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_NameError, "__build_class__ not found");
    return Flow::error;
  }
  if (live() != nullptr) found.ref = live()->read_dict({frame_.builtins(), 0}, key, found.object);
  push(found);
  return Flow::next;
}

// -- imports

// How a cached call finds the module that this import gave: in sys.modules, where it is from now
// on. What loading it has done stays done.
Ref InstructionHandlers::account_for_import(PyObject* module, PyObject* key, PyObject* from_list,
                                            long level) {
  PyObject* modules = PyImport_GetModuleDict();
  const auto read = [&](PyObject* full_name, PyObject* expected) -> Ref {
    PyObject* found = full_name ? PyDict_GetItemWithError(modules, full_name) : nullptr;
    PyErr_Clear();
    if (found == nullptr || (expected != nullptr && found != expected)) {
      stop(BreakReason::importing, text_of(key));
      return 0;
    }
    return trace_->read_dict({modules, 0}, full_name, found);
  };
  const bool wants_names = PyTuple_Check(from_list) && PyTuple_GET_SIZE(from_list) > 0;
  if (level > 0) {
    const Object full_name = Object::steal(PyModule_GetNameObject(module));
    PyErr_Clear();
    return read(full_name.get(), module);
  }
  if (wants_names) return read(key, module);
  read(key, nullptr);
  const Object top = top_package(key);
  return read(top.get(), module);
}

// The import machinery is not followed.
InstructionHandlers::Flow InstructionHandlers::import_name(int index) {
  PyObject* key = name(index);
  PyObject* from_list = peek(1).object;
  PyObject* level = peek(2).object;
  PyObject* import = PyDict_GetItemString(frame_.builtins(), "__import__");
  if (import == nullptr) {
    PyErr_SetString(PyExc_ImportError, "__import__ not found");
    return Flow::error;
  }
  Result module;
  {
    // What a module does when it is loaded is done once, whoever imports it.
    const Unfollowed unfollowed(live(), false, Trust::everybody);
    module.object = import_module(import, key, frame_, from_list, level);
  }
  if (live() != nullptr) {
    const bool is_repeatable =
        module.object != nullptr && PyModule_Check(module.object) && is_original_import(import);
    if (is_repeatable)
      module.ref = account_for_import(module.object, key, from_list, PyLong_AsLong(level));
    else
      stop(BreakReason::importing, text_of(key));
  }
  return replace(2, module);
}

InstructionHandlers::Flow InstructionHandlers::import_from(int index) {
  const Result found = get_attribute(trace_, peek(1), name(index));
  if (found.object == nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return Flow::error;
    // CPython looks into sys.modules then, for circular imports, and has a message for each case.
    PyErr_Clear();
    return unsupported("IMPORT_FROM");
  }
  push(found);
  return Flow::next;
}

}  // namespace smelt::bytecode
