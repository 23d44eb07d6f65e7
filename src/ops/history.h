// What ops leave in the graph of a backward pass, by the names of their schemas.
#pragma once

#include <string>
#include <string_view>

namespace smelt {

// Ops whose nodes keep no tensor: a second pass through them is as good as the first. One that is
// missing here is taken for one that does.
inline constexpr std::string_view kKeepNoTensor =
    " add add_ sub sub_ neg sum mean view view_as reshape flatten unflatten t transpose permute "
    "movedim expand expand_as squeeze unsqueeze slice select narrow split split_with_sizes chunk "
    "unbind cat stack clone alias to float _to_copy contiguous ";

inline bool keeps_tensors(std::string_view name) {
  constexpr std::string_view kLibrary = "aten::";
  if (!name.starts_with(kLibrary)) return true;
  const std::string word = " " + std::string(name.substr(kLibrary.size())) + " ";
  return kKeepNoTensor.find(word) == std::string_view::npos;
}

// It takes a tensor out of its graph.
inline bool ends_history(std::string_view name) { return name == "aten::detach"; }

}  // namespace smelt
