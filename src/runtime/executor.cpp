#include "runtime/executor.h"

namespace smelt {

void run(const Program& program, Machine& machine) {
  for (size_t i = 0; i < program.steps.size(); ++i) {
    machine.execute(i);
    for (Register reg : program.steps[i].release) machine.release(reg);
  }
}

}  // namespace smelt
