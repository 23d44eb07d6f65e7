#include "base/error.h"
#include "graph/effects.h"
#include "graph/graph.h"
#include "graph/numbers.h"

namespace smelt {
namespace {

// One walk in execution order. Every complaint names the line it is about.
class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph), defined_(graph.values.size(), false), writable_(defined_) {}

  void run() {
    for (const Guard& guard : graph_.symbols.guards()) {
      where_ = "guard " + guard.str();
      check_symbols(guard.left);
      check_symbols(guard.right);
    }
    for (const Input& input : graph_.inputs) verify_input(input);
    for (const Constant& constant : graph_.constants) {
      where_ = "constant " + constant.digest;
      define(constant.value, -1, 0);
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) verify_node(static_cast<NodeId>(i));
    where_ = "return";
    node_ = nullptr;
    for (ValueId output : graph_.outputs) {
      if (output != -1) check_use(output);
    }
    for (size_t i = 0; i < defined_.size(); ++i) {
      if (!defined_[i]) fail(name(static_cast<ValueId>(i)) + " is defined by nothing");
    }
  }

 private:
  static std::string name(int64_t value) { return "%" + std::to_string(value); }

  // Only the sentence of a complaint costs anything: graphs are verified after every pass that changes them.
  void check(bool condition, const char* message) const {
    if (!condition) fail(message);
  }

  [[noreturn]] void fail(const std::string& message) const {
    std::string where = node_ ? str(graph_, *node_) : where_;
    throw InternalError("the graph is broken at '" + where + "': " + message);
  }

  void check_symbols(const Size& size) const {
    if (size.is_known()) return;
    if (size.highest_symbol() >= static_cast<int>(graph_.symbols.symbols().size())) {
      fail(size.str() + " uses a symbol that is not declared");
    }
  }

  void check_exists(ValueId value) const {
    if (value < 0 || static_cast<size_t>(value) >= defined_.size())
      fail(name(value) + " does not exist");
  }

  void check_use(ValueId value) const {
    check_exists(value);
    if (!defined_[value]) fail(name(value) + " is used before it is defined");
  }

  void define(ValueId id, NodeId node, int32_t result) {
    check_exists(id);
    if (defined_[id]) fail(name(id) + " is defined twice");
    defined_[id] = true;
    const Value& value = graph_.values[id];
    if (value.node != node || value.result != result)
      fail(name(id) + " does not lead back to what defines it");
    const TensorType& type = value.type;
    if (type.sizes.size() != type.strides.size())
      fail(name(id) + " has not as many strides as sizes");
    for (const Size& size : type.sizes) {
      check_symbols(size);
      if (size.is_known() && size.known() < 0) fail(name(id) + " has a negative size");
    }
    for (const Size& stride : type.strides) check_symbols(stride);
    check_symbols(type.offset);
    if (numbers::is_number(type) && !is_whole_number(type))
      fail(name(id) + " is a number, and not of f64, i64 or b8 without dimensions on the CPU");
  }

  static bool is_whole_number(const TensorType& type) {
    return type == numbers::type_of(type.dtype) &&
           (type.dtype == DType::f64 || type.dtype == DType::i64 || type.dtype == DType::b8);
  }

  void verify_input(const Input& input) {
    where_ = "input " + name(input.value);
    define(input.value, -1, 0);
    writable_[input.value] = true;
    check(input.index >= 0, "its index is negative");
    if (input.source == Source::grad) {
      check(static_cast<size_t>(input.index) < graph_.inputs.size(),
            "it is the gradient of an input that does not exist");
    }
  }

  void verify_node(NodeId id) {
    const Node& node = graph_.nodes[id];
    where_ = "node " + std::to_string(id);
    node_ = nullptr;
    check(node.op != OpName(), "it has no op");
    for (ValueId result : node.results) {
      if (result != -1) check_exists(result);
    }
    // From here on its line can be printed: the op and the types it needs are there.
    node_ = &node;
    bool has_tensor = false;
    for (const Arg& arg : node.args) {
      each_ref(arg, [&](Ref ref) {
        check_use(ref.id);
        has_tensor = true;
      });
      each_size(arg, [&](const Size& size) { check_symbols(size); });
    }
    check(has_tensor || !node.traits.view,
          "a view shows the memory of a tensor argument, and there is none");
    for (size_t i = 0; i < node.results.size(); ++i) {
      if (node.results[i] >= 0) define(node.results[i], id, static_cast<int32_t>(i));
    }
    verify_effect(node);
    verify_number(node);
    if (effects::is_mutator(node.op)) verify_mutator(node);
  }

  // The number of results and arguments and the traits that effects.h promises for an op.
  void check_form(const Node& node, size_t args, size_t results, Traits traits) const {
    if (node.args.size() != args) fail("it takes " + std::to_string(args) + " arguments");
    if (node.results.size() != results) fail("it gives " + std::to_string(results) + " results");
    for (ValueId result : node.results) check(result >= 0, "its result is never undefined");
    check(node.traits == traits, "its traits are not those of its op");
  }

  ValueId tensor_at(const Node& node, size_t i) const {
    if (!node.args[i].is<Ref>()) fail("argument " + std::to_string(i) + " has to be a tensor");
    return node.args[i].get<Ref>().id;
  }

  void check_target(const Node& node) const {
    check(writable_[tensor_at(node, 0)],
          "the first argument has to be an input or what a write to one gave");
  }

  void check_generator(const Node& node) const {
    check(node.args[0].is<Device>() || node.args[0].is<Opaque>(),
          "the first argument has to be a device or a generator");
  }

  void verify_effect(const Node& node) {
    if (node.op == effects::kWrite) {
      check_form(node, 2, 1, {.effect = true, .view = true});
      check_target(node);
      tensor_at(node, 1);
      writable_[node.results[0]] = true;
    } else if (node.op == effects::kSetGrad) {
      check_form(node, 2, 0, {.effect = true});
      check_target(node);
      tensor_at(node, 1);
    } else if (node.op == effects::kClearGrad || node.op == effects::kExpectNoGrad) {
      check_form(node, 1, 0, {.effect = true});
      check_target(node);
    } else if (node.op == effects::kSaveRng) {
      check_form(node, 1, 1, {.random = true});
      check_generator(node);
    } else if (node.op == effects::kRestoreRng) {
      check_form(node, 2, 0, {.effect = true, .random = true});
      check_generator(node);
      tensor_at(node, 1);
    }
  }

  void check_number(const Node& node, size_t i) const {
    check(numbers::is_number(graph_.type(tensor_at(node, i))), "it takes a number");
  }

  numbers::Operand operand(const Arg& arg) const {
    if (const auto value = numbers::literal(arg)) return {numbers::dtype_of(*value), value};
    check(arg.is<Ref>() && numbers::is_number(graph_.type(arg.get<Ref>().id)),
          "an operand is no number");
    return {graph_.type(arg.get<Ref>().id).dtype, std::nullopt};
  }

  void verify_compute(const Node& node) const {
    check(!node.args.empty() && node.args[0].is<std::string>(), "it begins with the name of an op");
    const auto op = parse_number_op(node.args[0].get<std::string>());
    check(op.has_value(), "there is no such op on numbers");
    check_form(node, is_unary(*op) ? 2 : 3, 1, {});
    const auto dtype = numbers::result_of(*op, operand(node.args[1]), operand(node.args.back()));
    check(dtype == graph_.type(node.results[0]).dtype, "its result is of another type");
  }

  void verify_number(const Node& node) const {
    if (node.op == numbers::kCompute) {
      verify_compute(node);
    } else if (node.op == numbers::kItem) {
      check_form(node, 1, 1, {});
      tensor_at(node, 0);
    } else if (node.op == numbers::kExpect) {
      check_form(node, 2, 0, {.effect = true});
      check_number(node, 0);
      check(node.args[1].is<bool>(), "the second argument is the truth that is expected");
    } else if (node.op == numbers::kFits) {
      check_form(node, 2, 0, {.effect = true});
      check_number(node, 0);
      check(node.args[1].is<DType>(), "the second argument is a dtype");
    }
    if (node.op == numbers::kDraw) {
      check_generator(node);
      check(node.args.size() == 3 && node.results.size() == 2 &&
                node.traits == Traits{.random = true},
            "it takes a generator, a count and a number of blocks, and gives two numbers");
    }
    const bool gives =
        node.op == numbers::kCompute || node.op == numbers::kItem || node.op == numbers::kDraw;
    for (ValueId result : node.results)
      check(result < 0 || numbers::is_number(graph_.type(result)) == gives,
            gives ? "its result is a number" : "its result is no number");
  }

  void verify_mutator(const Node& node) const {
    check(!node.args.empty() && node.args[0].is<ArgList>(),
          "a mutator begins with the list of what it changes");
    for (const Arg& changed : node.args[0].get<ArgList>()) {
      bool in_range = changed.is<Size>() && changed.get<Size>().is_known() &&
                      changed.get<Size>().known() >= 0 &&
                      changed.get<Size>().known() < static_cast<int64_t>(node.args.size());
      check(in_range, "a mutator's list holds the places of its arguments");
    }
  }

  const Graph& graph_;
  std::vector<bool> defined_;
  std::vector<bool> writable_;
  const Node* node_ = nullptr;  // what is being checked: a node, or else
  std::string where_;           // this
};

}  // namespace

void Graph::verify() const { Verifier(*this).run(); }

}  // namespace smelt
