// Matrix products that are written into given memory: x.addmm_(a, b), torch.mm(a, b, out=x). The
// library computes them in the order of that memory, and rounds in that order; the functional op
// that such a call becomes writes rows. Here it becomes one that rounds alike.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "aten/op_info.h"

namespace smelt {

// Called before the op; its arguments start at `first`. True: the result is on the stack already.
bool write_product_by_columns(const OpInfo& op, std::vector<c10::IValue>* stack, size_t first);

}  // namespace smelt
