// What is certain of a size because every symbol is at least 2.
#pragma once

#include <cstdint>
#include <limits>

#include "base/size.h"

namespace smelt {

// A closed interval; the ends of int64_t mean that there is no bound on that side.
struct Bounds {
  static constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  static constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

  int64_t low = kLowest;
  int64_t high = kHighest;
};

Bounds bounds(const Size& size);
// Of a - b: a is certainly at least b where its low is not negative. An INT64_MAX among them is
// torch's "to the end", above every symbolic size.
Bounds difference_bounds(const Size& a, const Size& b);

}  // namespace smelt
