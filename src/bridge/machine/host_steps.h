// Steps of a program on CUDA that concern the host alone: Python's numbers, and tensors of the CPU
// such as an optimizer's counts of steps. A CUDA graph has the rest of the program, and is given
// the numbers that come of them.
#pragma once

#include <vector>

#include "base/error.h"
#include "bridge/machine/linked_program.h"

namespace smelt {

struct HostSteps : PartsOfRun {
  // Forbidden: the host waits for the device, or the device reads memory of the host.
  Decision possible = Decision::allow();
  bool any = false;  // there is something to do on the host
};

HostSteps find_host_steps(const LinkedProgram& program);

}  // namespace smelt
