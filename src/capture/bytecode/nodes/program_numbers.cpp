#include "capture/bytecode/nodes/program_numbers.h"

#include "capture/bytecode/nodes/number_ops.h"

namespace smelt::bytecode {

uint32_t ProgramNumbers::give(Ref scalar) {
  const auto [at, is_new] = given_.emplace(scalar, static_cast<uint32_t>(wanted_.scalars.size()));
  if (is_new) {
    wanted_.scalars.push_back(scalar);
    scalars_.push_back(scalar);
  }
  return at->second;
}

NumberStep::Operand ProgramNumbers::operand(Ref ref) {
  using From = NumberStep::Operand::From;
  if (nodes_[ref].late) return {From::number, define(ref), {}};
  const bool is_literal = nodes_[ref].kind == NodeKind::constant ||
                          (nodes_[ref].guards & (kGuardEqual | kGuardSame)) != 0;
  if (is_literal) return {From::literal, 0, to_number(nodes_[ref].object.get())};
  return {From::scalar, give(ref), {}};
}

uint32_t ProgramNumbers::define(Ref number) {
  if (const auto known = defined_.find(number); known != defined_.end()) return known->second;
  const Node& node = nodes_[number];
  NumberStep step;
  step.id = number;
  step.seen = to_number(node.object.get());
  if (node.kind == NodeKind::number) {
    step.item = node.index;
  } else {
    step.op = *number_op(node.op, node.index);
    step.a = operand(node.parent);
    if (node.second != 0) step.b = operand(node.second);
  }
  const auto place = static_cast<uint32_t>(wanted_.numbers.size());
  wanted_.numbers.push_back(step);
  defined_.emplace(number, place);
  return place;
}

}  // namespace smelt::bytecode
