// Bilinear upsampling, and gradients of nearest-neighbour upsampling by whole factors.
#include <bit>

#include "ops/decompose.h"
#include "ops/element.h"
#include "ops/meaning_families.h"

namespace smelt {
namespace {

// The two pixels of a dimension that an output pixel lies between, and its distance to the first.
struct Between {
  Index low, high;
  Expr toward_high;
};

double pixel_scale(bool align_corners, int64_t input, int64_t output, double scale_factor,
                   DType dtype) {
  const auto rounded = [&](double x) {
    return dtype == DType::f64 ? x : static_cast<double>(static_cast<float>(x));
  };
  if (align_corners)
    return output > 1 ? rounded(static_cast<double>(input - 1) / static_cast<double>(output - 1))
                      : 0;
  return scale_factor > 0 ? rounded(1 / scale_factor)
                          : rounded(static_cast<double>(input) / static_cast<double>(output));
}

Between between(ElementQuery& q, const Index& at, int64_t input, double scale, bool align_corners,
                DType dtype) {
  if (input == 1) return {0, 0, q.constant(dtype, 0.0)};
  Expr real = q.index_value(at).to(dtype);
  real = align_corners ? real * scale : max((real + 0.5) * scale - 0.5, 0.0);
  const Expr low = min(floor(real), static_cast<double>(input - 1));
  const Expr place = low.to(DType::i64);
  const Expr next = min(place + 1.0, static_cast<double>(input - 1));
  return {q.builder().as_index(place.value), q.builder().as_index(next.value),
          min(max(real - low, 0.0), 1.0)};
}

// upsample_bilinear2d(self, output_size, align_corners, scales_h, scales_w)
Expr bilinear(ElementQuery& q) {
  const DType dtype = accumulate_of(q.result().dtype);
  const bool align = q.boolean(2);
  const auto along = [&](size_t d) {
    const int64_t input = q.type(0).sizes[d].known(), output = q.result().sizes[d].known();
    const double scale = pixel_scale(align, input, output, q.number(d + 1, 0), dtype);
    return between(q, q.at()[d], input, scale, align, dtype);
  };
  const Between y = along(2), x = along(3);
  const auto row = [&](const Index& at) {
    const Expr low = q.load(q.value(0), {q.at()[0], q.at()[1], at, x.low}).to(dtype);
    const Expr high = q.load(q.value(0), {q.at()[0], q.at()[1], at, x.high}).to(dtype);
    return (1.0 - x.toward_high) * low + x.toward_high * high;
  };
  return (1.0 - y.toward_high) * row(y.low) + y.toward_high * row(y.high);
}

Decision allows_bilinear(const NodeReader& q) {
  for (int d = 2; d < q.result().rank(); ++d) {
    if (!q.type(0).sizes[d].is_known() || !q.result().sizes[d].is_known())
      return Decision::forbid("the sizes of the image are not known");
  }
  if (!all_certainly_positive(q.type(0).sizes)) return Decision::forbid("an empty image");
  return Decision::allow();
}

// upsample_nearest*_backward(grad_output, output_size, input_size, scales..): an input pixel has
// the gradients of the pixels it was repeated to. With a power of two there is no rounding that
// would move one of them.
template <int spatial>
bool nearest_gradient(DecomposeQuery& q) {
  Sizes sizes(q.result().sizes.begin(), q.result().sizes.begin() + 2);
  Dims inside;
  for (int d = 2; d < spatial + 2; ++d) {
    const auto input = q.result().sizes[d].as_known(), output = q.type(0).sizes[d].as_known();
    if (!input || !output || *input < 1 || *output % *input != 0) return false;
    const int64_t factor = *output / *input;
    const double given = q.number(d + 1, 0);
    if (!std::has_single_bit(static_cast<uint64_t>(factor))) return false;
    if (given > 0 && given != static_cast<double>(factor)) return false;
    sizes.emplace_back(*input);
    inside.push_back(static_cast<int64_t>(sizes.size()));
    sizes.emplace_back(factor);
  }
  give(q, 0, sum(view(wide_argument(q, 0), sizes), inside, false));
  return true;
}

constexpr Meaning kRows[] = {
    elsewhere(Pattern::gather, "aten::upsample_bilinear2d", bilinear, allows_bilinear, kCompound),
    {.name = "aten::upsample_nearest1d_backward", .decompose = nearest_gradient<1>},
    {.name = "aten::upsample_nearest2d_backward", .decompose = nearest_gradient<2>},
    {.name = "aten::upsample_nearest3d_backward", .decompose = nearest_gradient<3>},
};

}  // namespace

std::span<const Meaning> interpolate_meanings() { return kRows; }

}  // namespace smelt
