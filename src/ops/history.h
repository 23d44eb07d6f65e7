// What ops leave in the graph of a backward pass. All overloads of an op leave the same.
#pragma once

#include <string>
#include <string_view>

#include "graph/op_name.h"

namespace smelt {

// Ops whose nodes keep no tensor: a second pass through them is as good as the first. One that is
// missing here is taken for one that does.
inline constexpr std::string_view kKeepNoTensor =
    " add add_ sub sub_ rsub neg neg_ sum mean trace cumsum view view_as reshape flatten unflatten "
    "ravel t t_ numpy_T mT mH adjoint transpose transpose_ swapaxes swapdims permute movedim "
    "moveaxis "
    "expand expand_as broadcast_to squeeze squeeze_ unsqueeze unsqueeze_ slice select narrow split "
    "split_with_sizes chunk tensor_split hsplit vsplit dsplit unbind diagonal unfold as_strided "
    "view_as_real view_as_complex slice_scatter select_scatter cat concat concatenate stack hstack "
    "vstack dstack column_stack meshgrid repeat tile flip roll rot90 tril triu diag diag_embed "
    "constant_pad_nd pixel_shuffle pixel_unshuffle clone copy_ zero_ fill_ round floor ceil trunc "
    "sign alias to float type_as _to_copy contiguous ";

inline std::string_view without_overload(OpName op) {
  return std::string_view(op.str()).substr(0, op.str().find('.'));
}

inline bool keeps_tensors(OpName op) {
  constexpr std::string_view kLibrary = "aten::";
  const std::string_view name = without_overload(op);
  if (!name.starts_with(kLibrary)) return true;
  const std::string word = " " + std::string(name.substr(kLibrary.size())) + " ";
  return kKeepNoTensor.find(word) == std::string_view::npos;
}

// It takes a tensor out of its graph.
inline bool ends_history(OpName op) { return without_overload(op) == "aten::detach"; }

}  // namespace smelt
