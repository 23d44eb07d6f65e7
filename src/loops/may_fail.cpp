#include "loops/may_fail.h"

#include <algorithm>

namespace smelt::loops {

bool may_fail(Op op, DType dtype) {
  return op == Op::check || ((op == Op::div || op == Op::mod) && !is_floating(dtype));
}

bool may_fail(const Kernel& kernel) {
  return std::ranges::any_of(kernel.insts,
                             [](const Inst& inst) { return may_fail(inst.op, inst.dtype); });
}

}  // namespace smelt::loops
