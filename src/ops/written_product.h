// Matrix products that are written into given memory: x.addmm_(a, b), torch.mm(a, b, out=x).
#pragma once

#include <cstddef>

#include "graph/op_name.h"

namespace smelt {

// Where the tensors of such an op stand among its arguments.
struct WrittenProduct {
  OpName op;
  size_t left, target;
  int added;  // what the product is added to; -1: nothing, or the target
  int dims;
  OpName single = {};  // of a batch: the op for one of its matrices
};

// nullptr: the op is none.
const WrittenProduct* find_written_product(OpName op);

}  // namespace smelt
