// Runs a Program on a Machine: the steps in order, each register released after its last use.
#pragma once

#include "runtime/program.h"

namespace smelt {

// What executes steps and holds registers: tensors and ops live behind it. One Machine per call; it
// knows the steps by their index so that it can prepare them once.
class Machine {
 public:
  virtual ~Machine() = default;
  virtual void execute(size_t step) = 0;
  virtual void release(Register reg) = 0;
};

void run(const Program& program, Machine& machine);

}  // namespace smelt
