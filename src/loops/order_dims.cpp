// Memory is walked best with the smallest stride innermost. Every access has a vote on every two
// dimensions it walks: the one with the larger stride should be the outer one. Stores are asked
// first, then loads; a vote weighs as much as the access moves. Where nobody votes the order stays.
//
// What may be permuted: the outer dimensions, unless the kernel is ordered; the inner ones, unless
// their order can be seen, by argmin and argmax (which give a position), by scans and accumulate,
// or by stores of several inner points to one place, of which the last one counts.
#include <algorithm>
#include <cstdlib>

#include "base/bounds.h"
#include "loops/simplify.h"

namespace smelt::loops {
namespace {

struct Access {
  std::vector<Size> strides;  // per dimension; 0 where it has no say
  int weight;
  bool store;
};

void drop_units(Kernel& kernel) {
  Sizes outer, inner;
  Indices dims;
  int32_t next = 0;
  for (int d = 0; d < kernel.dims(); ++d) {
    const Size& extent = kernel.extent(d);
    if (extent.is(1)) {
      dims.push_back(0);
      continue;
    }
    dims.push_back(Index::dim(next++));
    (d < static_cast<int>(kernel.outer.size()) ? outer : inner).push_back(extent);
  }
  if (next != kernel.dims()) replace_dims(kernel, std::move(outer), std::move(inner), dims);
}

// As far as it can be told: 1 if |a| > |b|, -1 if less, else 0.
int compare_strides(const Size& a, const Size& b) {
  if (a.is_known() && b.is_known()) {
    int64_t left = std::llabs(a.known()), right = std::llabs(b.known());
    return left > right ? 1 : left < right ? -1 : 0;
  }
  if (bounds(a).low < 0 || bounds(b).low < 0) return 0;
  Bounds difference = difference_bounds(a, b);
  return difference.low > 0 ? 1 : difference.high < 0 ? -1 : 0;
}

class Order {
 public:
  explicit Order(const Kernel& kernel) {
    for (const Stage& stage : kernel.stages) {
      for (Val v = stage.begin; v < stage.end; ++v) {
        const Inst& inst = kernel.insts[v];
        if (inst.slot < 0 || inst.op == Op::param || inst.index.is_constant()) continue;
        // An inner stage comes by many times.
        int weight = bytes_of(inst.dtype) * (stage.inner ? 64 : 1);
        accesses_.push_back({std::vector<Size>(kernel.dims()), weight, inst.op != Op::load});
        for (const Term& term : inst.index.terms()) {
          if (term.atom.kind == Atom::Kind::dim)
            accesses_.back().strides[term.atom.id] = term.stride;
        }
      }
    }
  }

  // Should a stand outside of b? Positive for yes, negative for the other way round.
  int outside(int a, int b) const {
    int by_stores = 0, by_loads = 0;
    for (const Access& access : accesses_) {
      const Size &left = access.strides[a], &right = access.strides[b];
      if (left.is(0) || right.is(0)) continue;
      (access.store ? by_stores : by_loads) += access.weight * compare_strides(left, right);
    }
    return by_stores != 0 ? by_stores : by_loads;
  }

  // Sorts by insertion: the votes need not add up to an order, and this ends anyway.
  void sort(std::span<int> dims) const {
    for (size_t i = 1; i < dims.size(); ++i) {
      size_t place = i;
      for (size_t j = i; j-- > 0;) {
        int vote = outside(dims[place], dims[j]);
        if (vote < 0) break;
        if (vote == 0) continue;
        std::rotate(dims.begin() + static_cast<ptrdiff_t>(j),
                    dims.begin() + static_cast<ptrdiff_t>(place),
                    dims.begin() + static_cast<ptrdiff_t>(place) + 1);
        place = j;
      }
    }
  }

 private:
  std::vector<Access> accesses_;
};

bool inner_order_is_seen(const Kernel& kernel) {
  auto first = static_cast<int32_t>(kernel.outer.size());
  for (const Stage& stage : kernel.stages) {
    for (Val v = stage.begin; stage.inner && v < stage.end; ++v) {
      const Inst& inst = kernel.insts[v];
      if (inst.op == Op::accumulate || inst.op == Op::scan) return true;
      if (inst.op == Op::reduce && gives_position(inst.reduction)) return true;
      if (inst.op != Op::store) continue;
      if (inst.index.uses_values()) return true;
      for (int32_t d = first; d < kernel.dims(); ++d) {
        if (!inst.index.uses_dim(d)) return true;
      }
    }
  }
  return false;
}

void permute(Kernel& kernel, std::span<const int> order) {
  Sizes outer, inner;
  Indices dims(order.size());
  for (size_t place = 0; place < order.size(); ++place) {
    dims[order[place]] = Index::dim(static_cast<int32_t>(place));
    (place < kernel.outer.size() ? outer : inner).push_back(kernel.extent(order[place]));
  }
  replace_dims(kernel, std::move(outer), std::move(inner), dims);
}

}  // namespace

void order_dims(Kernel& kernel) {
  drop_units(kernel);
  bool outer = kernel.outer.size() > 1 && !kernel.ordered;
  bool inner = kernel.inner.size() > 1 && !kernel.ordered && !inner_order_is_seen(kernel);
  if (!outer && !inner) return;
  std::vector<int> dims(kernel.dims());
  for (size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int>(d);
  Order order(kernel);
  std::span<int> all(dims);
  if (outer) order.sort(all.first(kernel.outer.size()));
  if (inner) order.sort(all.subspan(kernel.outer.size()));
  if (!std::is_sorted(dims.begin(), dims.end())) permute(kernel, dims);
}

}  // namespace smelt::loops
