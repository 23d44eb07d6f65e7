// Running sums and products along a dimension.
#include "ops/meanings/families.h"
#include "ops/rules/element.h"

namespace smelt {
namespace {

// ATen's kernels carry a float in double precision, and what is narrower in single.
DType carried(DType dtype) { return dtype == DType::f32 ? DType::f64 : accumulate_of(dtype); }

// (self, dim, dtype)
template <loops::Reduction reduction>
ReductionForm cumulative(const NodeReader& q) {
  return {.reduction = reduction,
          .dims = {dim_of(q.integer(1), q.type(0).rank())},
          .keepdim = false,
          .accumulate = carried(q.result().dtype)};
}

Decision allows_cumulative(const NodeReader& q) {
  if (q.type(0).rank() == 0) return Decision::forbid("a scalar");
  if (q.result().dtype == DType::b8) return Decision::forbid("a running sum of booleans");
  return Decision::allow();
}

constexpr Meaning scans(std::string_view name, ReductionRule rule) {
  return {.name = name, .scan = rule, .allows = allows_cumulative, .cost = kCompound};
}

constexpr Meaning kRows[] = {
    scans("aten::cumsum", cumulative<loops::Reduction::sum>),
    scans("aten::cumprod", cumulative<loops::Reduction::product>),
};

}  // namespace

std::span<const Meaning> scan_meanings() { return kRows; }

}  // namespace smelt
