// The op by which optimizers count their steps: (count, number, 1), a sum.
#pragma once

#include <string_view>

namespace smelt {

inline constexpr std::string_view kCountOp = "aten::add.Tensor";

}  // namespace smelt
