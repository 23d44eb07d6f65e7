#include "capture/bytecode/nodes/paths.h"

#include <unordered_set>

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
      case NodeKind::size:  // a name that the user gave to it
        return node.key ? text_of(node.key.get()) : parent() + ".shape" + index();
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

}  // namespace

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

bool is_module_state(const std::vector<Node>& nodes, Ref ref) {
  const Node& node = nodes[ref];
  if (node.kind != NodeKind::dict_item) return false;
  const Node& dict = nodes[node.parent];
  if (dict.kind != NodeKind::dict_item || !PyUnicode_Check(dict.key.get())) return false;
  const bool is_state = PyUnicode_CompareWithASCIIString(dict.key.get(), "_parameters") == 0 ||
                        PyUnicode_CompareWithASCIIString(dict.key.get(), "_buffers") == 0;
  return is_state && nodes[dict.parent].kind == NodeKind::instance_dict;
}

std::string path_text(const std::vector<Node>& nodes, Ref ref, PyObject* code) {
  return Path(nodes, code).text(ref);
}

std::string item_text(const std::vector<Node>& nodes, Ref dict, PyObject* key, PyObject* code) {
  return Path(nodes, code).dict_item(dict, key);
}

}  // namespace smelt::bytecode
