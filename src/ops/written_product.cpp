#include "ops/written_product.h"

#include <algorithm>

namespace smelt {

const WrittenProduct* find_written_product(OpName op) {
  static const OpName kAdded("aten::addmm_"), kAddedOut("aten::addmm.out"), kOut("aten::mm.out");
  static const WrittenProduct rows[] = {
      {kAdded, 1, 0, -1, 2},
      {kAddedOut, 1, 5, 0, 2},
      {kOut, 0, 2, -1, 2},
      {OpName("aten::baddbmm_"), 1, 0, -1, 3, kAdded},
      {OpName("aten::baddbmm.out"), 1, 5, 0, 3, kAddedOut},
      {OpName("aten::bmm.out"), 0, 2, -1, 3, kOut},
  };
  const auto* found = std::ranges::find(rows, op, &WrittenProduct::op);
  return found == std::end(rows) ? nullptr : found;
}

}  // namespace smelt
