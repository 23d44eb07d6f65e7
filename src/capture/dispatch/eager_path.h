// Composite ops that ask what kind of tensor they were given. For a functional tensor they take the
// path that serves any wrapper, where eager takes another one that differs in the last bits; here
// they get eager's.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "aten/op_info.h"

namespace smelt {

class Recorder;

// Called before the op; its arguments start at `first`. True: the results are on the stack already.
bool take_eager_path(Recorder& recorder, const OpInfo& op, std::vector<c10::IValue>* stack,
                     size_t first);

}  // namespace smelt
