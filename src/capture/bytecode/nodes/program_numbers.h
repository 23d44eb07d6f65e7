// The numbers that a tensor program is given, and those that it reads and computes itself, while
// its request is written.
#pragma once

#include <unordered_map>
#include <vector>

#include "capture/bytecode/nodes/node.h"
#include "capture/bytecode/nodes/tensors.h"

namespace smelt::bytecode {

class ProgramNumbers {
 public:
  // `scalars`: the nodes behind wanted.scalars.
  ProgramNumbers(const std::vector<Node>& nodes, ProgramRequest& wanted, std::vector<Ref>& scalars)
      : nodes_(nodes), wanted_(wanted), scalars_(scalars) {}

  // The place of a run-time scalar among those that the program is given.
  uint32_t give(Ref scalar);
  // The place of a number that the program comes by itself among its steps.
  uint32_t define(Ref number);

 private:
  NumberStep::Operand operand(Ref ref);

  const std::vector<Node>& nodes_;
  ProgramRequest& wanted_;
  std::vector<Ref>& scalars_;
  std::unordered_map<Ref, uint32_t> given_, defined_;
};

}  // namespace smelt::bytecode
