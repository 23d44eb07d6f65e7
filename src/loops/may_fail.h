// What may fail while a kernel runs: an index out of range, an integer that is divided by 0.
#pragma once

#include "loops/kernel.h"

namespace smelt::loops {

bool may_fail(Op op, DType dtype);
bool may_fail(const Kernel& kernel);

}  // namespace smelt::loops
