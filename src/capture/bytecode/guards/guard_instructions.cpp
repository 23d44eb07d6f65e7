#include "capture/bytecode/guards/guard_instructions.h"

#include <opcode.h>

#include <algorithm>
#include <string_view>

#include "capture/bytecode/cpython/constants.h"
#include "capture/bytecode/cpython/dict_lookup.h"
#include "capture/bytecode/cpython/iterators.h"
#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/cpython/same_value.h"

namespace smelt::bytecode {
namespace {

bool is_scalar(PyObject* object) {
  return PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyBool_Check(object) ||
         PyUnicode_CheckExact(object);
}

PyObject* binary(int64_t op, PyObject* a, PyObject* b) {
  switch (op) {
    case NB_ADD: return PyNumber_Add(a, b);
    case NB_AND: return PyNumber_And(a, b);
    case NB_FLOOR_DIVIDE: return PyNumber_FloorDivide(a, b);
    case NB_LSHIFT: return PyNumber_Lshift(a, b);
    case NB_MULTIPLY: return PyNumber_Multiply(a, b);
    case NB_REMAINDER: return PyNumber_Remainder(a, b);
    case NB_OR: return PyNumber_Or(a, b);
    case NB_POWER: return PyNumber_Power(a, b, Py_None);
    case NB_RSHIFT: return PyNumber_Rshift(a, b);
    case NB_SUBTRACT: return PyNumber_Subtract(a, b);
    case NB_TRUE_DIVIDE: return PyNumber_TrueDivide(a, b);
    case NB_XOR: return PyNumber_Xor(a, b);
    // On immutable objects the ones in place do the same.
    case NB_INPLACE_ADD: return PyNumber_Add(a, b);
    case NB_INPLACE_AND: return PyNumber_And(a, b);
    case NB_INPLACE_FLOOR_DIVIDE: return PyNumber_FloorDivide(a, b);
    case NB_INPLACE_LSHIFT: return PyNumber_Lshift(a, b);
    case NB_INPLACE_MULTIPLY: return PyNumber_Multiply(a, b);
    case NB_INPLACE_REMAINDER: return PyNumber_Remainder(a, b);
    case NB_INPLACE_OR: return PyNumber_Or(a, b);
    case NB_INPLACE_POWER: return PyNumber_Power(a, b, Py_None);
    case NB_INPLACE_RSHIFT: return PyNumber_Rshift(a, b);
    case NB_INPLACE_SUBTRACT: return PyNumber_Subtract(a, b);
    case NB_INPLACE_TRUE_DIVIDE: return PyNumber_TrueDivide(a, b);
    case NB_INPLACE_XOR: return PyNumber_Xor(a, b);
    default: return nullptr;
  }
}

PyObject* compute(const GuardInstruction& instruction, PyObject* a, PyObject* b) {
  switch (instruction.scalar_op) {
    case ScalarOp::binary: return b != nullptr ? binary(instruction.number, a, b) : nullptr;
    case ScalarOp::compare:
      return b != nullptr ? PyObject_RichCompare(a, b, static_cast<int>(instruction.number))
                          : nullptr;
    case ScalarOp::unary_negative: return PyNumber_Negative(a);
    case ScalarOp::unary_positive: return PyNumber_Positive(a);
    case ScalarOp::unary_invert: return PyNumber_Invert(a);
    case ScalarOp::unary_not: return PyBool_FromLong(PyObject_Not(a));
    case ScalarOp::is_true: return PyBool_FromLong(PyObject_IsTrue(a));
    case ScalarOp::call: {
      PyObject* const arguments[] = {a, b};
      return PyObject_Vectorcall(instruction.object, arguments, b != nullptr ? 2 : 1, nullptr);
    }
  }
  return nullptr;
}

PyObject* scalar(const GuardInstruction& instruction, PyObject* const* registers) {
  const auto operand = [&](uint32_t index) {
    return index != kNoRegister ? registers[index] : nullptr;
  };
  PyObject* a = operand(instruction.first);
  PyObject* b = operand(instruction.second);  // a unary operation has none
  if (a == nullptr || !is_scalar(a) || (b != nullptr && !is_scalar(b))) return nullptr;
  PyObject* result = compute(instruction, a, b);
  if (result == nullptr) PyErr_Clear();
  return result;
}

// An iterator over a range of which so much is left.
bool is_before(PyObject* iterator, PyObject* range) {
  const Object left = left_of_range(iterator);
  return left && same_value(left.get(), range);
}

PyObject* instance_dict(PyObject* object) {
  PyObject** at = _PyObject_GetDictPtr(object);
  if (at == nullptr) return nullptr;
  if (*at == nullptr) {
    PyObject* made = PyObject_GenericGetDict(object, nullptr);
    if (made == nullptr) {
      PyErr_Clear();
      return nullptr;
    }
    Py_DECREF(made);  // the object holds it
  }
  return *at;
}

PyObject* sequence_item(PyObject* sequence, int64_t index) {
  if (!PyTuple_Check(sequence) && !PyList_Check(sequence)) return nullptr;
  if (index < 0 || index >= Py_SIZE(sequence)) return nullptr;
  return PySequence_Fast_GET_ITEM(sequence, index);
}

PyObject* closure_cell(PyObject* function, int64_t index) {
  if (!PyFunction_Check(function)) return nullptr;
  PyObject* closure = PyFunction_GET_CLOSURE(function);
  if (closure == nullptr || index >= PyTuple_GET_SIZE(closure)) return nullptr;
  return PyTuple_GET_ITEM(closure, index);
}

// As Python shows it: None if the function has none.
PyObject* function_defaults(PyObject* function, bool keyword) {
  if (!PyFunction_Check(function)) return nullptr;
  PyObject* found =
      keyword ? PyFunction_GET_KW_DEFAULTS(function) : PyFunction_GET_DEFAULTS(function);
  return found != nullptr ? found : Py_None;
}

PyObject* method_self(PyObject* method) {
  if (PyMethod_Check(method)) return PyMethod_GET_SELF(method);
  return PyCFunction_Check(method) ? PyCFunction_GET_SELF(method) : nullptr;
}

// The descriptor is asked directly, so that nothing but it can run.
PyObject* attribute(const GuardInstruction& instruction, PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type != instruction.type) return nullptr;
  PyObject* descriptor = _PyType_Lookup(type, instruction.object);
  if (descriptor != instruction.other) return nullptr;
  const descrgetfunc get = descriptor != nullptr ? Py_TYPE(descriptor)->tp_descr_get : nullptr;
  PyObject* found = get != nullptr ? get(descriptor, object, reinterpret_cast<PyObject*>(type))
                    : type == known_type(KnownType::thread_local_)  // each thread's
                        ? type->tp_getattro(object, instruction.object)
                        : PyObject_GenericGetAttr(object, instruction.object);
  if (found == nullptr) PyErr_Clear();
  return found;
}

PyObject* size(const GuardInstruction& instruction, PyObject* tensor) {
  if (!tensors().is_tensor(tensor)) return nullptr;
  const auto dim = static_cast<int>(instruction.number);
  if (dim >= tensors().rank_of(tensor)) return nullptr;
  PyObject* made = PyLong_FromLongLong(tensors().size_of(tensor, dim));
  if (made == nullptr) PyErr_Clear();
  return made;
}

PyObject* load(const GuardInstruction& instruction, std::span<PyObject* const> slots,
               PyObject* const* registers) {
  const auto parent = [&] { return registers[instruction.first]; };
  switch (instruction.op) {
    case GuardOp::constant: return instruction.object;
    case GuardOp::slot: {
      const auto index = static_cast<size_t>(instruction.number);
      return index < slots.size() ? slots[index] : nullptr;
    }
    case GuardOp::dict_item:
      if (!PyDict_Check(parent())) return nullptr;
      return find_item(parent(), instruction.object, instruction.number);
    case GuardOp::instance_dict: return instance_dict(parent());
    case GuardOp::item: return sequence_item(parent(), instruction.number);
    case GuardOp::cell: return PyCell_Check(parent()) ? PyCell_GET(parent()) : nullptr;
    case GuardOp::closure: return closure_cell(parent(), instruction.number);
    case GuardOp::defaults: return function_defaults(parent(), false);
    case GuardOp::kwdefaults: return function_defaults(parent(), true);
    case GuardOp::method_function:
      return PyMethod_Check(parent()) ? PyMethod_GET_FUNCTION(parent()) : nullptr;
    case GuardOp::method_self: return method_self(parent());
    case GuardOp::type_of: return reinterpret_cast<PyObject*>(Py_TYPE(parent()));
    case GuardOp::type_attribute:
      if (!PyType_Check(parent())) return nullptr;
      return _PyType_Lookup(reinterpret_cast<PyTypeObject*>(parent()), instruction.object);
    case GuardOp::attribute: return attribute(instruction, parent());
    case GuardOp::iterated: return gone_over(parent());
    case GuardOp::referent:
      return PyWeakref_CheckRef(parent()) ? PyWeakref_GET_OBJECT(parent()) : nullptr;
    case GuardOp::size: return size(instruction, parent());
    case GuardOp::scalar: return scalar(instruction, registers);
    default: return nullptr;
  }
}

// By the storage of the builtin containers, whatever a subclass makes of it; -1: no length.
int64_t length_of(PyObject* object) {
  if (PyList_Check(object) || PyTuple_Check(object)) return Py_SIZE(object);
  if (PyDict_Check(object)) return PyDict_GET_SIZE(object);
  if (PyAnySet_Check(object)) return PySet_GET_SIZE(object);
  if (PyUnicode_Check(object)) return PyUnicode_GET_LENGTH(object);
  const unsigned long flags = Py_TYPE(object)->tp_flags;
  const bool in_c = !(flags & Py_TPFLAGS_HEAPTYPE) || (flags & Py_TPFLAGS_IMMUTABLETYPE);
  const int64_t length = in_c ? PyObject_Size(object) : -1;
  if (length < 0) PyErr_Clear();
  return length;
}

bool has_truth(PyObject* object, bool expected) {
  if (is_scalar(object) || object == Py_None) {
    return PyObject_IsTrue(object) == static_cast<int>(expected);
  }
  if (const int64_t length = length_of(object); length >= 0) return (length > 0) == expected;
  const PyTypeObject* type = Py_TYPE(object);
  const bool can_be_false =
      (type->tp_as_number != nullptr && type->tp_as_number->nb_bool != nullptr) ||
      (type->tp_as_mapping != nullptr && type->tp_as_mapping->mp_length != nullptr) ||
      (type->tp_as_sequence != nullptr && type->tp_as_sequence->sq_length != nullptr);
  return !can_be_false && expected;
}

bool is_function(PyObject* object, const GuardInstruction& instruction) {
  return PyFunction_Check(object) && PyFunction_GET_CODE(object) == instruction.object &&
         PyFunction_GET_GLOBALS(object) == instruction.other;
}

bool holds(const GuardInstruction& instruction, PyObject* const* registers) {
  PyObject* object = registers[instruction.first];
  switch (instruction.op) {
    case GuardOp::type: return reinterpret_cast<PyObject*>(Py_TYPE(object)) == instruction.object;
    case GuardOp::same: return object == instruction.object;
    case GuardOp::equal: return same_value(object, instruction.object);
    case GuardOp::length: return length_of(object) == instruction.number;
    case GuardOp::tensor: return instruction.tensor->holds(object);
    case GuardOp::keys: return PyDict_Check(object) && same_keys(object, instruction.object);
    case GuardOp::truth: return has_truth(object, instruction.expected);
    case GuardOp::function: return is_function(object, instruction);
    case GuardOp::set: return PyAnySet_Check(object) && same_elements(object, instruction.object);
    case GuardOp::absent:
      return PyDict_Check(object) && is_absent(object, instruction.object, instruction.number);
    case GuardOp::position:
      if (instruction.object == nullptr) return position_of(object) == instruction.number;
      return is_before(object, instruction.object);
    case GuardOp::alias: return (object == registers[instruction.second]) == instruction.expected;
    case GuardOp::distinct: return instruction.distinct->hold(registers);
    default: return false;
  }
}

}  // namespace

bool DistinctRegisters::hold(PyObject* const* registers) const {
  std::vector<PyObject*> objects;
  objects.reserve(changed.size());
  for (const uint32_t index : changed) objects.push_back(registers[index]);
  std::ranges::sort(objects);
  if (std::ranges::adjacent_find(objects) != objects.end()) return false;
  return std::ranges::none_of(others, [&](uint32_t index) {
    return std::ranges::binary_search(objects, registers[index]);
  });
}

bool execute(const GuardInstruction& instruction, std::span<PyObject* const> slots,
             PyObject** registers) {
  if (!instruction.is_load()) return holds(instruction, registers);
  registers[instruction.target] = load(instruction, slots, registers);
  return registers[instruction.target] != nullptr;
}

}  // namespace smelt::bytecode
