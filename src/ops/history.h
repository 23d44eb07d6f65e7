// What ops leave in the graph of a backward pass. All overloads of an op leave the same.
#pragma once

#include <string>
#include <string_view>

#include "graph/op_name.h"

namespace smelt {

// Ops whose nodes keep no tensor: a second pass through them is as good as the first. One that is
// missing here is taken for one that does.
inline constexpr std::string_view kKeepNoTensor =
    " add add_ sub sub_ neg sum mean view view_as reshape flatten unflatten t transpose permute "
    "movedim expand expand_as squeeze unsqueeze slice select narrow split split_with_sizes chunk "
    "unbind cat stack clone alias to float _to_copy contiguous ";

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
