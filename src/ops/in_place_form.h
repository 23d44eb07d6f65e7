// Ops of libraries that can as well write their result over one of their arguments.
#pragma once

#include "graph/op_name.h"

namespace smelt {

// `op` computes the same in the memory of an argument, which has the type of the result. It takes
// that argument first, and the others in their order behind it.
struct InPlaceForm {
  OpName op;
  int argument = 0;
};

// nullptr: the op has none.
const InPlaceForm* find_in_place_form(OpName op);

}  // namespace smelt
