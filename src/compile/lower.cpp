// One step per node. What is decided here is how long a tensor lives: a register is released after
// the last step that reads it and given to a later result, so that memory goes back as early as in
// eager code that drops its variables at once. A view keeps its storage alive by itself (the
// Machine's tensors are counted), so a chain of views needs no care.

#include <functional>
#include <limits>
#include <queue>

#include "base/error.h"
#include "compile/compile.h"
#include "passes/ownership.h"

namespace smelt {
namespace {

constexpr NodeId kForever = std::numeric_limits<NodeId>::max();

static_assert(static_cast<int>(Source::argument) == 0 && static_cast<int>(Source::captured) == 1 &&
              static_cast<int>(Source::grad) == 2);  // as Program::str names them

// By value: the last node that reads it, -1 if none does, kForever for what outlives the steps.
std::vector<NodeId> last_readers(const Graph& graph) {
  std::vector<NodeId> last(graph.values.size(), -1);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const Arg& arg : graph.nodes[i].args) {
      each_ref(arg, [&](Ref ref) { last[ref.id] = static_cast<NodeId>(i); });
    }
  }
  for (const Input& input : graph.inputs) last[input.value] = kForever;
  for (const Constant& constant : graph.constants) last[constant.value] = kForever;
  for (ValueId output : graph.outputs) {
    if (output >= 0) last[output] = kForever;
  }
  return last;
}

SymbolBinding bind(const Graph& graph, int symbol) {
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Sizes& sizes = graph.type(graph.inputs[i].value).sizes;
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      if (sizes[dim].as_symbol() == symbol) {
        return {.input = static_cast<int32_t>(i), .dim = static_cast<int32_t>(dim)};
      }
    }
  }
  const Symbol& which = graph.symbols.symbols()[symbol];
  throw Error(
      "the size s" + std::to_string(symbol) +
      (which.name.empty() ? "" : " ('" + which.name + "')") + ", which was " +
      std::to_string(which.hint) +
      " when the graph was recorded, is not the size of any input in a dimension of its own, "
      "so its value is not known when the program starts; record with that size fixed");
}

class Lowering {
 public:
  explicit Lowering(const Graph& graph)
      : graph_(graph),
        last_reader_(last_readers(graph)),
        visible_(visible_views(graph)),
        register_of_(graph.values.size(), -1) {}

  Program run() {
    program_.symbols = graph_.symbols;
    program_.symbols.set_locator(nullptr);  // of the recorder, which the program outlives
    for (size_t i = 0; i < graph_.symbols.symbols().size(); ++i) {
      program_.bindings.push_back(bind(graph_, static_cast<int>(i)));
    }
    for (const Input& input : graph_.inputs) {
      program_.inputs.push_back({.reg = take(input.value),
                                 .source = static_cast<uint8_t>(input.source),
                                 .index = input.index,
                                 .type = graph_.type(input.value)});
    }
    for (const Constant& constant : graph_.constants) {
      program_.constants.push_back(
          {.reg = take(constant.value), .data = constant.data, .digest = constant.digest});
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) add_step(static_cast<NodeId>(i));
    for (const ValueId output : graph_.outputs) {
      program_.outputs.push_back(output < 0 ? -1 : register_of_[output]);
    }
    return std::move(program_);
  }

 private:
  // A register for a value: the lowest that is free.
  Register take(ValueId value) {
    Register reg = program_.registers;
    if (free_.empty()) {
      ++program_.registers;
    } else {
      reg = free_.top();
      free_.pop();
    }
    return register_of_[value] = reg;
  }

  void add_step(NodeId id) {
    const Node& node = graph_.nodes[id];
    Step step;
    step.op = node.op.str();
    step.args = node.args;
    step.visible = visible_[id];
    step.grad = node.traits.grad;
    // Results first: a step reads its arguments while it writes them.
    for (const ValueId result : node.results) {
      const bool read = result >= 0 && last_reader_[result] >= 0;
      step.results.push_back(read ? take(result) : -1);
      step.types.push_back(result >= 0 ? graph_.type(result) : TensorType());
    }
    for (Arg& arg : step.args) {
      each_ref(arg, [&](Ref& ref) {
        const ValueId value = ref.id;
        ref.id = register_of_[value];
        if (last_reader_[value] != id) return;
        last_reader_[value] = kForever;  // released once, however often the node reads it
        step.release.push_back(ref.id);
      });
    }
    for (const Register reg : step.release) free_.push(reg);
    program_.steps.push_back(std::move(step));
  }

  const Graph& graph_;
  std::vector<NodeId> last_reader_;
  std::vector<bool> visible_;
  std::vector<Register> register_of_;
  std::priority_queue<Register, std::vector<Register>, std::greater<>> free_;
  Program program_;
};

}  // namespace

Program lower(const Graph& graph) { return Lowering(graph).run(); }

}  // namespace smelt
