// Random places for the loads and stores of a random kernel.
#pragma once

#include "loops/random/random_values.h"

namespace smelt::loops {

class RandomIndex {
 public:
  RandomIndex(Builder& builder, Random& random) : builder_(builder), random_(random) {}

  // Some index that is never negative, over the dimensions [0, dims).
  Index any(int dims);
  // One with another place for each point: dimensions in any order, with gaps.
  Index distinct(int dims) { return distinct(0, dims); }
  Index distinct(int first, int last);
  // The number of elements a buffer needs for it.
  Size elements(const Index& index) const;

 private:
  Index affine(int dims);
  Index reshaped(int dims);
  Index divided(int dims);

  Builder& builder_;
  Random& random_;
};

}  // namespace smelt::loops
