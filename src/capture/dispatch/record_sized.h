// Ops whose result has a size that contents decide, under a recorder that is told the size: other
// ops do the same with a size that is given, and a check that it is the right one.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace smelt {

// Arguments on the stack, results in their place. An Error for an op that can't be written so.
void record_sized(const c10::OperatorHandle& op, const std::vector<std::vector<int64_t>>& sizes,
                  std::vector<c10::IValue>& stack);

// The same with a count that varies, of which nothing is checked.
void record_counted(const c10::OperatorHandle& op, const c10::SymInt& count,
                    std::vector<c10::IValue>& stack);

}  // namespace smelt
