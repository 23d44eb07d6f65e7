// The result types of an op call, without computing it. Four tiers: smelt's own row (keeps symbols
// exactly), PyTorch's C++ meta kernel, what the op gave when the program was run for real, and the
// meta kernel that a library other than PyTorch's has registered. No kernel is ever run on contents
// that the program does not have. PyTorch's own meta kernels in Python are not used: they cost
// milliseconds and load the compiler stack that smelt replaces.
#pragma once

#include <ATen/core/ivalue.h>

#include <map>
#include <optional>
#include <vector>

#include "aten/op_info.h"
#include "aten/size_node.h"
#include "base/arg.h"
#include "base/type.h"

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

// The results that an op had in a real run, one type for each tensor, in their order.
struct KnownResults {
  c10::OperatorHandle op;
  std::vector<std::optional<TensorType>> types;
};

// Throws what eager would throw for wrong arguments, and RecordError for results that no tier knows
// or that a graph can't hold (sparse ones). `known`: of the op at hand or of its in-place form, or
// nullptr.
std::vector<Result> infer_results(const Call& call, const SymbolsPtr& symbols,
                                  const KnownResults* known = nullptr);

// The keys that must be off while smelt itself computes with plain tensors inside a recorded
// region.
c10::DispatchKeySet recording_keys();

}  // namespace smelt
