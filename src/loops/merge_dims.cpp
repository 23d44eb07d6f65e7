// Two neighbours d and e = d + 1 are walked as one by an index that has them as s*extent(e)*i_d +
// s*i_e: then that is s*i of one dimension i of extent(d)*extent(e), and points keep their order.
// If all indices do, also those inside quotients and remainders, i stands for both.
#include <algorithm>
#include <functional>

#include "loops/simplify.h"

namespace smelt::loops {
namespace {

class Merger {
 public:
  explicit Merger(const Kernel& kernel)
      : extents_(kernel.extents()), joined_(kernel.dims(), true), strides_(kernel.dims()) {
    // joined_[d]: d and d - 1 are one.
    if (!joined_.empty()) joined_[0] = false;
    if (kernel.outer.size() < joined_.size()) joined_[kernel.outer.size()] = false;
    for (const Inst& inst : kernel.insts) {
      if (!any()) break;
      if (!inst.index.is_constant()) visit(inst.index);
    }
  }

  bool any() const { return std::any_of(joined_.begin(), joined_.end(), std::identity()); }
  bool joined(size_t dim) const { return joined_[dim]; }

 private:
  void visit(const Index& index) {
    std::fill(strides_.begin(), strides_.end(), Size(0));
    for (const Term& term : index.terms()) {
      if (term.atom.kind == Atom::Kind::dim) strides_[term.atom.id] = term.stride;
    }
    for (size_t d = 1; d < joined_.size(); ++d) {
      if (joined_[d]) joined_[d] = strides_[d - 1] == strides_[d] * extents_[d];
    }
    for (const Term& term : index.terms()) {
      if (term.atom.inner) visit(*term.atom.inner);
    }
  }

  Sizes extents_;
  std::vector<bool> joined_;
  Sizes strides_;  // of the index being looked at
};

}  // namespace

void merge_dims(Kernel& kernel) {
  if (kernel.dims() < 2) return;
  Merger merger(kernel);
  if (!merger.any()) return;
  Sizes outer, inner;
  Indices dims(kernel.dims());
  int32_t next = 0;
  for (int d = 0; d < kernel.dims(); ++d) {
    Sizes& sizes = d < static_cast<int>(kernel.outer.size()) ? outer : inner;
    bool last = d + 1 == kernel.dims() || !merger.joined(d + 1);
    // The last one of a run stands for all of it; the others count in its stride.
    dims[d] = last ? Index::dim(next++) : Index(0);
    if (merger.joined(d))
      sizes.back() = sizes.back() * kernel.extent(d);
    else
      sizes.push_back(kernel.extent(d));
  }
  replace_dims(kernel, std::move(outer), std::move(inner), dims);
}

}  // namespace smelt::loops
