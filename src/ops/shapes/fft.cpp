// Fourier transforms. On the CPU MKL leaves its result with the transformed dimensions innermost,
// in the order in which it took them; other libraries leave a contiguous one.
#include <algorithm>
#include <numeric>

#include "ops/rules/fft_library.h"
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

// The transformed dimensions, counted from the front; nothing where there are none or too many.
std::optional<std::vector<int>> dims_of(const ShapeQuery& q, const TensorType& self) {
  std::vector<int> dims;
  for (const int64_t item : q.integers(1)) {
    const std::optional<int> dim = wrap_dim(item, self.rank());
    if (!dim || std::ranges::find(dims, *dim) != dims.end()) return std::nullopt;
    dims.push_back(*dim);
  }
  if (dims.empty() || self.rank() == 0) return std::nullopt;
  return dims;
}

// The result: the other dimensions in the order of the input's strides, then the transformed ones,
// of which the last may have to stay the last.
TensorType transformed(SymbolTable& s, const TensorType& self, std::vector<int> dims,
                       bool last_stays, DType dtype, const Sizes& sizes) {
  TensorType result = fresh(dtype, self.device, sizes);
  if (!fft_by_mkl) return result;
  const auto longer = [&](int a, int b) { return less(s, self.strides[b], self.strides[a]); };
  std::stable_sort(dims.begin(), dims.end() - (last_stays ? 1 : 0), longer);
  // Where strides are equal, the order is the one that std::partition leaves in ATen's code.
  std::vector<int> order(self.rank());
  std::iota(order.begin(), order.end(), 0);
  order.erase(std::partition(order.begin(), order.end(),
                             [&](int d) { return std::ranges::find(dims, d) == dims.end(); }),
              order.end());
  std::stable_sort(order.begin(), order.end(), longer);
  order.insert(order.end(), dims.begin(), dims.end());
  Size stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    result.strides[order[i]] = stride;
    stride = stride * sizes[order[i]];
  }
  return result;
}

Decision check_input(const ShapeQuery& q, const TensorType& self, Kinds kinds) {
  if (!self.device.is_cpu()) return Decision::forbid("not modelled on this device");
  if (!takes(kinds, self.dtype)) return Decision::forbid("no rule for this dtype");
  return is_empty(q.symbols(), self.sizes) ? Decision::forbid("it is empty") : Decision::allow();
}

// _fft_c2c(self, dim, normalization, forward)
Decision complex_to_complex(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (Decision fits = check_input(q, self, kComplexes); !fits) return fits;
  const auto dims = dims_of(q, self);
  if (!dims) return Decision::forbid("no such dimensions");
  q.push(transformed(q.symbols(), self, *dims, false, self.dtype, self.sizes));
  return Decision::allow();
}

// _fft_r2c(self, dim, normalization, onesided)
Decision real_to_complex(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (Decision fits = check_input(q, self, kReals); !fits) return fits;
  const auto dims = dims_of(q, self);
  if (!dims) return Decision::forbid("no such dimensions");
  Sizes sizes = self.sizes;
  if (q.boolean(3)) sizes[dims->back()] = floor_div(sizes[dims->back()], 2) + 1;
  q.push(transformed(q.symbols(), self, *dims, true, *complex_of(self.dtype), sizes));
  return Decision::allow();
}

// _fft_c2r(self, dim, normalization, last_dim_size): over all but the last dimension first.
Decision complex_to_real(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (Decision fits = check_input(q, self, kComplexes); !fits) return fits;
  const auto dims = dims_of(q, self);
  if (!dims) return Decision::forbid("no such dimensions");
  const std::vector<int> last = {dims->back()}, first(dims->begin(), dims->end() - 1);
  const TensorType between =
      first.empty() ? self : transformed(q.symbols(), self, first, false, self.dtype, self.sizes);
  Sizes sizes = self.sizes;
  sizes[dims->back()] = q.size_at(3);
  if (less(q.symbols(), sizes[dims->back()], 1) ||
      !equal(q.symbols(), floor_div(sizes[dims->back()], 2) + 1, self.sizes[dims->back()]))
    return Decision::forbid("no such size");
  q.push(transformed(q.symbols(), between, last, true, real_of(self.dtype), sizes));
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::_fft_c2c", complex_to_complex},
    {"aten::_fft_c2r", complex_to_real},
    {"aten::_fft_r2c", real_to_complex},
};

}  // namespace

std::span<const OpRow> fft_rows() { return kRows; }

}  // namespace smelt
