// The iteration space of a group of nodes: the points at which its kernel computes something.
#pragma once

#include <vector>

#include "base/size.h"
#include "loops/index.h"

namespace smelt {

// All points of tensors of sizes `full`; the dimensions in `reduced` are the kernel's inner ones.
struct Domain {
  Sizes full;
  std::vector<int> reduced;  // ascending; empty: nothing is reduced (yet)

  friend bool operator==(const Domain&, const Domain&) = default;

  bool is_reduced(int dim) const;
  Sizes outer() const;  // the extents that are kept, in order
  Sizes inner() const;
  // The sizes that a result of the reduction has.
  Sizes kept(bool keepdim) const;

  // The place of a full tensor's element at a point, as a kernel's dimensions; and of a tensor with
  // a value per outer point. In a dimension of size 1 the place is 0.
  loops::Indices full_index() const;
  loops::Indices outer_index(bool keepdim) const;
};

}  // namespace smelt
