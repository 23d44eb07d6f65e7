#include "compile/peak_memory.h"

#include <utility>

#include "graph/alias.h"

namespace smelt {
namespace {

// A piece of memory that a step has taken.
struct Block {
  int64_t bytes = 0;
  std::string text;  // the type, and who made it
  int holders = 0;   // registers
};

class Walk {
 public:
  Walk(const Graph& graph, const Schedule& schedule, const Program& program)
      : graph_(graph), schedule_(schedule), program_(program), block_of_(program.registers, -1) {
    for (const Symbol& symbol : program.symbols.symbols()) hints_.push_back(symbol.hint);
  }

  std::string run() {
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      const Step& step = program_.steps[i];
      for (size_t k = 0; k < step.results.size(); ++k)
        if (step.results[k] >= 0) hold(step.results[k], block_for(i, k));
      note_peak(step);
      for (const Register reg : step.release) hold(reg, -1);
    }
    return text_;
  }

 private:
  void hold(Register reg, int block) {
    if (block >= 0 && blocks_[block].holders++ == 0) live_ += blocks_[block].bytes;
    const int old = std::exchange(block_of_[reg], block);
    if (old >= 0 && --blocks_[old].holders == 0) live_ -= blocks_[old].bytes;
  }

  // The memory of a step's result; -1: a tensor of the caller's.
  int block_for(size_t index, size_t result) {
    const Step& step = program_.steps[index];
    if (step.kernel >= 0 && step.into[result] >= 0) return block_of_[step.into[result]];
    if (result < step.reuse.size() && step.reuse[result] >= 0 && block_of_[step.reuse[result]] >= 0)
      return block_of_[step.reuse[result]];
    if (step.kernel >= 0) return new_block(step, result);
    if (const Node& node = graph_.nodes[schedule_.order[index].node]; node.traits.view) {
      return shown_by(node, step);
    }
    return new_block(step, result);
  }

  int new_block(const Step& step, size_t result) {
    const TensorType& type = step.types[result];
    const int64_t bytes = type.numel().evaluate(hints_) * bytes_of(type.dtype);
    blocks_.push_back({.bytes = bytes, .text = type.str() + " of " + step.op, .holders = 0});
    return static_cast<int>(blocks_.size() - 1);
  }

  int shown_by(const Node& node, const Step& step) const {
    const ValueId shown = viewed(node);
    for (size_t i = 0; i < node.args.size(); ++i)
      if (node.args[i].is<Ref>() && node.args[i].get<Ref>().id == shown)
        return block_of_[step.args[i].get<Ref>().id];
    return -1;
  }

  void note_peak(const Step& step) {
    if (live_ <= peak_) return;
    peak_ = live_;
    text_ = std::to_string(live_) + " bytes at " + step.op + "\n";
    for (const Block& block : blocks_)
      if (block.holders > 0) text_ += "  " + std::to_string(block.bytes) + "  " + block.text + "\n";
  }

  const Graph& graph_;
  const Schedule& schedule_;
  const Program& program_;
  std::vector<int64_t> hints_;
  std::vector<Block> blocks_;
  std::vector<int> block_of_;  // by register; -1: nothing of the program's
  int64_t live_ = 0, peak_ = 0;
  std::string text_ = "none\n";
};

}  // namespace

std::string describe_peak(const Graph& graph, const Schedule& schedule, const Program& program) {
  return Walk(graph, schedule, program).run();
}

}  // namespace smelt
