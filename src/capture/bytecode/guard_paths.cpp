#include <unordered_set>

#include "capture/bytecode/guard_program.h"
#include "capture/bytecode/guard_text.h"

namespace smelt::bytecode {
namespace {

// In the order of NB_* in opcode.h, in-place ones behind.
constexpr const char* kOperators[] = {
    "+",  "&",  "//",  "<<",  "@",  "*",  "%",  "|",  "**",  ">>",  "-",  "/",  "^",
    "+=", "&=", "//=", "<<=", "@=", "*=", "%=", "|=", "**=", ">>=", "-=", "/=", "^="};
constexpr const char* kComparisons[] = {"<", "<=", "==", "!=", ">", ">="};

template <size_t kSize>
std::string symbol(const char* const (&table)[kSize], int64_t index) {
  const bool known = index >= 0 && index < static_cast<int64_t>(kSize);
  return known ? table[index] : "?";
}

std::string slot_name(int index, PyObject* code) {
  if (code == nullptr || !PyCode_Check(code)) return "<slot " + std::to_string(index) + ">";
  PyObject* names = reinterpret_cast<PyCodeObject*>(code)->co_localsplusnames;
  const auto locals = static_cast<int>(PyTuple_GET_SIZE(names));
  if (index < locals) return text_of(PyTuple_GET_ITEM(names, index));
  return "<stack " + std::to_string(index - locals) + ">";
}

std::string constant_name(PyObject* object) {
  if (object == nullptr) return "?";
  if (PyType_Check(object)) return reinterpret_cast<PyTypeObject*>(object)->tp_name;
  if (PyFunction_Check(object)) {
    return text_of(reinterpret_cast<PyFunctionObject*>(object)->func_qualname);
  }
  if (PyModule_Check(object)) {
    const char* name = PyModule_GetName(object);
    if (name != nullptr) return name;
    PyErr_Clear();
  }
  return show(object);
}

std::string callee_name(PyObject* function) {
  if (!PyCFunction_Check(function)) return constant_name(function);
  return reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name;
}

bool is_text(PyObject* object, std::initializer_list<const char*> texts) {
  if (object == nullptr || !PyUnicode_Check(object)) return false;
  for (const char* text : texts) {
    if (PyUnicode_CompareWithASCIIString(object, text) == 0) return true;
  }
  return false;
}

class Path {
 public:
  Path(const std::vector<Node>& nodes, PyObject* code) : nodes_(nodes), code_(code) {}

  std::string text(Ref ref) const {
    if (ref >= nodes_.size()) return "?";
    const Node& node = nodes_[ref];
    const auto parent = [&] { return text(node.parent); };
    const auto index = [&] { return "[" + std::to_string(node.index) + "]"; };
    switch (node.kind) {
      case NodeKind::constant: return constant_name(node.object.get());
      case NodeKind::slot: return slot_name(node.index, code_);
      case NodeKind::dict_item: return dict_item(node.parent, node.key.get());
      case NodeKind::instance_dict: return parent() + ".__dict__";
      case NodeKind::item: return parent() + index();
      case NodeKind::cell:
        return kind_of(node.parent) == NodeKind::slot ? parent() : parent() + ".cell_contents";
      case NodeKind::closure: return parent() + ".__closure__" + index();
      case NodeKind::defaults: return parent() + ".__defaults__";
      case NodeKind::kwdefaults: return parent() + ".__kwdefaults__";
      case NodeKind::method_function: return parent() + ".__func__";
      case NodeKind::method_self: return parent() + ".__self__";
      case NodeKind::type: return "type(" + parent() + ")";
      case NodeKind::type_attribute:
      case NodeKind::attribute: return parent() + "." + text_of(node.key.get());
      case NodeKind::iterated: return "what " + parent() + " goes over";
      case NodeKind::referent: return parent() + "()";
      case NodeKind::scalar: return scalar(node);
      case NodeKind::tensor: return "<tensor " + std::to_string(node.index) + ">";
      case NodeKind::result: return "<result " + std::to_string(node.index) + ">";
      case NodeKind::number: return "<number " + std::to_string(node.index) + ">";
    }
    return "?";
  }

  // parent[key], the way one would write it.
  std::string dict_item(Ref parent, PyObject* key) const {
    const bool is_name = key != nullptr && PyUnicode_Check(key);
    const NodeKind kind = kind_of(parent);
    if (is_name && kind == NodeKind::constant) return text_of(key);  // a global or builtin
    if (is_name && kind == NodeKind::instance_dict) {
      return text(nodes_[parent].parent) + "." + text_of(key);
    }
    // What nn.Module.__getattr__ finds.
    if (is_name && kind == NodeKind::dict_item &&
        is_text(nodes_[parent].key.get(), {"_parameters", "_modules", "_buffers"}) &&
        kind_of(nodes_[parent].parent) == NodeKind::instance_dict) {
      const std::string owner = text(nodes_[nodes_[parent].parent].parent);
      const std::string name = text_of(key);
      const bool is_number = name.find_first_not_of("0123456789") == std::string::npos;
      return is_number ? owner + "[" + name + "]" : owner + "." + name;
    }
    return text(parent) + "[" + show(key) + "]";
  }

 private:
  NodeKind kind_of(Ref ref) const {
    return ref < nodes_.size() ? nodes_[ref].kind : NodeKind::constant;
  }

  std::string scalar(const Node& node) const {
    const auto operand = [&](Ref ref) { return ref != 0 ? text(ref) : "?"; };
    const std::string first = operand(node.parent);
    switch (node.op) {
      case ScalarOp::binary:
        return "(" + first + " " + symbol(kOperators, node.index) + " " + operand(node.second) +
               ")";
      case ScalarOp::compare:
        return "(" + first + " " + symbol(kComparisons, node.index) + " " + operand(node.second) +
               ")";
      case ScalarOp::unary_negative: return "-" + first;
      case ScalarOp::unary_positive: return "+" + first;
      case ScalarOp::unary_invert: return "~" + first;
      case ScalarOp::unary_not: return "(not " + first + ")";
      case ScalarOp::is_true: return "bool(" + first + ")";
      case ScalarOp::call: {
        const std::string rest = node.second != 0 ? ", " + text(node.second) : "";
        return callee_name(node.key.get()) + "(" + first + rest + ")";
      }
    }
    return "?";
  }

  const std::vector<Node>& nodes_;
  PyObject* code_;
};

const char* truth_text(bool truth) { return truth ? "true" : "false"; }

// Of the type alone where the whole would say nothing.
std::string type_name(PyObject* type) { return reinterpret_cast<PyTypeObject*>(type)->tp_name; }

std::string code_name(PyObject* code) {
  return text_of(reinterpret_cast<PyCodeObject*>(code)->co_qualname);
}

std::string subject(const GuardNames& names, const GuardInstruction& instruction) {
  const Path path(names.nodes, names.code.get());
  if (instruction.op == GuardOp::absent) {
    return path.dict_item(instruction.ref, instruction.object);
  }
  return path.text(instruction.ref);
}

std::string wanted_text(const GuardNames& names, const GuardInstruction& check) {
  const Path path(names.nodes, names.code.get());
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
             path.text(static_cast<Ref>(check.number));
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

std::vector<Ref> paths_behind(const std::vector<Node>& nodes, Ref number) {
  std::vector<Ref> paths, todo{number};
  std::unordered_set<Ref> seen{0, number};
  while (!todo.empty()) {
    const Ref ref = todo.back();
    todo.pop_back();
    const Node& node = nodes[ref];
    if (node.kind == NodeKind::scalar) {
      for (const Ref operand : {node.parent, node.second})
        if (seen.insert(operand).second) todo.push_back(operand);
    } else if (node.kind < NodeKind::scalar && node.kind != NodeKind::constant) {
      paths.push_back(ref);
    }
  }
  return paths;
}

std::string path_text(const std::vector<Node>& nodes, Ref ref, PyObject* code) {
  return Path(nodes, code).text(ref);
}

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
  return path + ": was " + was + ", is " + is;
}

std::string lookup_line(const TypeLookup& lookup) {
  return lookup_name(lookup) + ": " + lookup_value(lookup.found.get());
}

std::string lookup_failure(const TypeLookup& lookup, PyObject* found) {
  const std::string was = lookup_value(lookup.found.get()), is = lookup_value(found);
  return lookup_name(lookup) + ": was " + was + ", is " + (was == is ? "another " : "") + is;
}

}  // namespace smelt::bytecode
