// Factories and the default dtype.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "base/arg.h"

namespace smelt {

// What makes a tensor of nothing, and is given no dtype, takes the default one of the moment. Where
// such a call is kept it is told the dtype of its result instead, so that the moment does not
// matter.
inline void name_dtype(const c10::FunctionSchema& schema, std::vector<c10::IValue>& arguments,
                       c10::ScalarType result) {
  const auto dtype = schema.argumentIndexWithName("dtype");
  if (dtype && arguments[*dtype].isNone()) arguments[*dtype] = result;
}
inline void name_dtype(const c10::FunctionSchema& schema, std::vector<Arg>& args, DType result) {
  const auto dtype = schema.argumentIndexWithName("dtype");
  if (dtype && args[*dtype].is_none()) args[*dtype] = result;
}

}  // namespace smelt
