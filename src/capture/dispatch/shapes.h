// The result types of an op call, from its arguments alone. Three tiers: smelt's own row (keeps
// symbols exactly), PyTorch's C++ meta kernel, and a run of the op on stand-in data. Python's meta
// kernels are never used: they cost milliseconds and load the compiler stack that smelt replaces.
#pragma once

#include <ATen/core/ivalue.h>

#include <map>
#include <optional>
#include <vector>

#include "base/arg.h"
#include "base/type.h"
#include "capture/dispatch/op_info.h"
#include "capture/dispatch/size_node.h"

namespace smelt {

// A call under consideration: references in `args` are positions in `types`.
struct Call {
  const OpInfo& op;
  std::vector<Arg> args;
  std::vector<TensorType> types;
  const std::vector<c10::IValue>& opaque;  // what Opaque arguments stand for
  // By position: the numbers among the references, with what each is now if that is known.
  std::map<int32_t, std::optional<at::Scalar>> numbers;
};

// One result: a tensor (none if the op leaves it undefined), a list of tensors, or a plain value.
struct Result {
  enum class Kind : uint8_t { tensor, list, literal };
  Kind kind = Kind::tensor;
  std::optional<TensorType> tensor;
  std::vector<TensorType> list;
  c10::IValue literal;
};

// Throws what eager would throw for wrong arguments, and RecordError for results that a graph can't
// hold (sparse ones).
std::vector<Result> infer_results(const Call& call, const SymbolsPtr& symbols);

// Runs the call for real on stand-in data at the symbols' hints; throws what eager throws.
void run_on_stand_ins(const Call& call, const SymbolTable& symbols);

// The keys that must be off while smelt itself computes with plain tensors inside a recorded
// region.
c10::DispatchKeySet recording_keys();

}  // namespace smelt
