#include "capture/bytecode/guards/guard_text.h"

#include "capture/bytecode/nodes/paths.h"

namespace smelt::bytecode {
namespace {

const char* truth_text(bool truth) { return truth ? "true" : "false"; }

// Of the type alone where the whole would say nothing.
std::string type_name(PyObject* type) { return reinterpret_cast<PyTypeObject*>(type)->tp_name; }

std::string code_name(PyObject* code) {
  return text_of(reinterpret_cast<PyCodeObject*>(code)->co_qualname);
}

std::string subject(const GuardNames& names, const GuardInstruction& instruction) {
  PyObject* code = names.code.get();
  if (instruction.op == GuardOp::absent) {
    return item_text(names.nodes, instruction.ref, instruction.object, code);
  }
  return path_text(names.nodes, instruction.ref, code);
}

std::string wanted_text(const GuardNames& names, const GuardInstruction& check) {
  switch (check.op) {
    case GuardOp::type: return "a " + type_name(check.object);
    case GuardOp::same: return "the same " + constant_name(check.object);
    case GuardOp::equal: return show(check.object);
    case GuardOp::length: return "length " + std::to_string(check.number);
    case GuardOp::position:
      if (check.object != nullptr) return "an iterator that will give " + show(check.object);
      return "an iterator at element " + std::to_string(check.number);
    case GuardOp::tensor: return check.tensor->str();
    case GuardOp::keys: return "keys " + show(check.object);
    case GuardOp::truth: return truth_text(check.expected);
    case GuardOp::function: return "function " + code_name(check.object);
    case GuardOp::set: return show(check.object);
    case GuardOp::absent: return "not there";
    case GuardOp::alias:
      return (check.expected ? "the same object as " : "not the same object as ") +
             path_text(names.nodes, static_cast<Ref>(check.number), names.code.get());
    case GuardOp::distinct: return "no other object that is read or changed";
    default: return "there";
  }
}

// By identity, or as strings: no code of the user's is to run here.
bool holds(PyObject* list, PyObject* key) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* one = PyList_GET_ITEM(list, i);
    if (one == key || show(one) == show(key)) return true;
  }
  return false;
}

std::string found_text(const GuardInstruction& check, PyObject* object) {
  switch (check.op) {
    case GuardOp::type: return "a " + std::string(Py_TYPE(object)->tp_name);
    case GuardOp::same: return object == nullptr ? "not there" : "another " + constant_name(object);
    case GuardOp::length: {
      const Py_ssize_t length = PyTuple_Check(object) || PyList_Check(object) ? Py_SIZE(object)
                                : PyDict_Check(object)   ? PyDict_GET_SIZE(object)
                                : PyAnySet_Check(object) ? PySet_GET_SIZE(object)
                                                         : -1;
      return length >= 0 ? "length " + std::to_string(length)
                         : "a " + std::string(Py_TYPE(object)->tp_name);
    }
    case GuardOp::truth: return truth_text(!check.expected);
    case GuardOp::function:
      return PyFunction_Check(object) ? "another function " + constant_name(object) : show(object);
    case GuardOp::absent: return "there";
    case GuardOp::alias: return check.expected ? "another object" : "the same object";
    case GuardOp::distinct: return "one of them, or another one is";
    default: return show(object);
  }
}

// "has a new key 'mask'": how the keys of a dict differ from those that were there.
std::string difference_of_keys(PyObject* were, PyObject* dict) {
  if (!PyDict_Check(dict)) return "was a dict, is a " + std::string(Py_TYPE(dict)->tp_name);
  const Object now = Object::steal(PyDict_Keys(dict));
  const Object before = Object::steal(PySequence_List(were));
  if (now && before) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(now.get()); ++i)
      if (PyObject* key = PyList_GET_ITEM(now.get(), i); !holds(before.get(), key))
        return "has a new key " + show(key);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(before.get()); ++i)
      if (PyObject* key = PyList_GET_ITEM(before.get(), i); !holds(now.get(), key))
        return "has no key " + show(key) + " any more";
  }
  PyErr_Clear();
  return "has its keys in another order";
}

std::string lookup_name(const TypeLookup& lookup) {
  return type_name(lookup.type.get()) + "." + text_of(lookup.name.get());
}

std::string without_article(const std::string& text) {
  return text.starts_with("a ") ? text.substr(2) : text;
}

std::string lookup_value(PyObject* found) { return found != nullptr ? show(found) : "not there"; }

}  // namespace

namespace {

// ", asked at model.py:12", of a condition on sizes.
std::string asked_at(const GuardNames& names, const GuardInstruction& check) {
  const Node& node = names.nodes.at(check.ref);
  return node.where ? ", asked at " + text_of(node.where.get()) : "";
}

}  // namespace

std::string guard_line(const GuardNames& names, const GuardInstruction& check) {
  return subject(names, check) + ": " + wanted_text(names, check);
}

std::string guard_failure(const GuardNames& names, const GuardInstruction& failed,
                          PyObject* const* registers) {
  const std::string path = subject(names, failed);
  if (failed.op == GuardOp::scalar) return path + ": could be computed, cannot be now";
  if (failed.is_load()) return path + ": was there, is not";
  PyObject* object = registers[failed.first];
  if (failed.op == GuardOp::tensor) return path + ": " + failed.tensor->difference(object);
  if (failed.op == GuardOp::keys) return path + ": " + difference_of_keys(failed.object, object);
  const std::string was = wanted_text(names, failed), is = found_text(failed, object);
  if (failed.op == GuardOp::same) {
    const std::string before = constant_name(failed.object);
    const bool tells = object != nullptr && before != constant_name(object);
    return path + ": " + (tells ? "was " + before + ", is " + constant_name(object) : "is " + is);
  }
  if (was == is) return path + ": is not the " + without_article(was) + " that it was";
  return path + ": was " + was + ", is " + is + asked_at(names, failed);
}

std::string lookup_line(const TypeLookup& lookup) {
  return lookup_name(lookup) + ": " + lookup_value(lookup.found.get());
}

std::string lookup_failure(const TypeLookup& lookup, PyObject* found) {
  const std::string was = lookup_value(lookup.found.get()), is = lookup_value(found);
  return lookup_name(lookup) + ": was " + was + ", is " + (was == is ? "another " : "") + is;
}

}  // namespace smelt::bytecode
