// The ops by which optimizers count their steps: (count, number, 1), a sum, and the same for a list.
#pragma once

#include <string_view>

namespace smelt {

inline constexpr std::string_view kCountOp = "aten::add.Tensor";
inline constexpr std::string_view kCountsOp = "aten::_foreach_add.Tensor";

}  // namespace smelt
