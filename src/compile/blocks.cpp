#include "compile/blocks.h"

#include <utility>

#include "graph/alias.h"
#include "graph/effects.h"
#include "graph/numbers.h"
#include "ops/rows.h"

namespace smelt {
namespace {

// Does the step look at elements of its arguments and nothing else? What an op without a row
// returns or keeps is not known.
bool only_reads(const Node& node, const Step& step) {
  if (step.view_offset || node.op == effects::kWrite || node.op == numbers::kItem) return true;
  return !node.traits.effect && !node.traits.view && !node.traits.grad && find_row(node.op);
}

bool is_plain(const TensorType& type) {
  return !type.conj && !type.neg && !numbers::is_number(type) && type.offset.is(0);
}

class Walk {
 public:
  Walk(const Graph& graph, const Schedule& schedule, const Program& program)
      : graph_(graph), schedule_(schedule), program_(program), block_of_(program.registers, -1) {}

  std::vector<Block> run() {
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      const Step& step = program_.steps[i];
      if (step.kernel < 0 && !only_reads(node_of(i), step)) show_arguments(step);
      for (size_t k = 0; k < step.results.size(); ++k)
        if (step.results[k] >= 0) hold(step.results[k], block_for(i, k), i);
      for (const Register reg : step.release) hold(reg, -1, i);
    }
    for (const Register reg : program_.outputs)
      if (reg >= 0) show(block_of_[reg]);
    for (size_t block = 0; block < blocks_.size(); ++block)
      if (holders_[block] > 0)
        blocks_[block].last = static_cast<int32_t>(program_.steps.size()) - 1;
    return std::move(blocks_);
  }

 private:
  const Node& node_of(size_t step) const { return graph_.nodes[schedule_.order[step].node]; }

  void show(int block) {
    if (block >= 0) blocks_[block].inside = false;
  }
  void show_arguments(const Step& step) {
    for (const Arg& arg : step.args) each_ref(arg, [&](Ref reg) { show(block_of_[reg.id]); });
  }

  void hold(Register reg, int block, size_t step) {
    if (block >= 0) ++holders_[block];
    const int old = std::exchange(block_of_[reg], block);
    if (old >= 0 && --holders_[old] == 0) blocks_[old].last = static_cast<int32_t>(step);
  }

  // The memory of a step's result; -1: a tensor of the caller's.
  int block_for(size_t index, size_t result) {
    const Step& step = program_.steps[index];
    const Block::Made made{static_cast<int32_t>(index), static_cast<int32_t>(result)};
    if (step.kernel < 0) {
      if (node_of(index).traits.view) return shown_by(node_of(index), step);
      if (step.in_place_op.empty()) return take(made, /*inside=*/false);
      const int block = block_of_[step.reuse[result]];
      if (block < 0) return take(made, /*inside=*/false);
      show(block);  // an op of PyTorch's returns it
      return block;
    }
    if (step.into[result] >= 0) return block_of_[step.into[result]];
    const Register reuse = step.reuse[result];
    if (reuse < 0) return take(made, may_be_inside(step, result));
    const int block = block_of_[reuse];
    if (block < 0) return take(made, /*inside=*/false);  // or the memory of an input given away
    // A view that is still there needs what is in it.
    if (holders_[block] > 1) return take(made, may_be_inside(step, result));
    blocks_[block].made.push_back(made);
    return block;
  }

  // Memory of another device its own allocator keeps at hand.
  bool may_be_inside(const Step& step, size_t result) const {
    return schedule_.kernels[step.kernel].backend->runs_on_host() && is_plain(step.types[result]);
  }

  int take(Block::Made made, bool inside) {
    blocks_.push_back({.made = {made}, .first = made.step, .last = made.step, .inside = inside});
    holders_.push_back(0);
    return static_cast<int>(blocks_.size()) - 1;
  }

  int shown_by(const Node& node, const Step& step) const {
    const ValueId shown = viewed(node);
    for (size_t i = 0; i < node.args.size(); ++i)
      if (node.args[i].is<Ref>() && node.args[i].get<Ref>().id == shown)
        return block_of_[step.args[i].get<Ref>().id];
    return -1;
  }

  const Graph& graph_;
  const Schedule& schedule_;
  const Program& program_;
  std::vector<Block> blocks_;
  std::vector<int> holders_;   // by block: registers
  std::vector<int> block_of_;  // by register; -1: nothing of the program's
};

}  // namespace

std::vector<Block> blocks_of(const Graph& graph, const Schedule& schedule, const Program& program) {
  return Walk(graph, schedule, program).run();
}

const TensorType& type_of(const Program& program, const Block& block) {
  return program.steps[block.made[0].step].types[block.made[0].result];
}

Size bytes_of(const TensorType& type) {
  Size last = 0;
  for (size_t d = 0; d < type.sizes.size(); ++d)
    last = last + (type.sizes[d] - 1) * type.strides[d];
  return (last + 1) * bytes_of(type.dtype);
}

}  // namespace smelt
