#include "loops/simplify.h"

#include "base/error.h"

namespace smelt::loops {

void replace_dims(Kernel& kernel, Sizes outer, Sizes inner, std::span<const Index> dims) {
  SMELT_CHECK(dims.size() == static_cast<size_t>(kernel.dims()), "an index for each old dimension");
  kernel.outer = std::move(outer);
  kernel.inner = std::move(inner);
  Sizes extents = kernel.extents();
  for (Inst& inst : kernel.insts) {
    if (!inst.index.is_constant()) inst.index = inst.index.substitute(dims, {extents});
  }
}

// What is not read has no say in how dimensions are split, ordered or merged, so it goes first.
// Splitting makes the indices affine, which ordering needs; merging looks at neighbours.
void simplify(Kernel& kernel) {
  remove_unused(kernel);
  split_dims(kernel);
  order_dims(kernel);
  merge_dims(kernel);
}

}  // namespace smelt::loops
