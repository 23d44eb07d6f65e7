// Interpolation between pixels, and gradients of nearest-neighbour upsampling by whole factors.
#include <bit>

#include "ops/decompose.h"
#include "ops/element.h"
#include "ops/meaning_families.h"

namespace smelt {
namespace {

// --- linear and cubic (self, output_size, align_corners, scales..) ---

// What an output pixel has of the input along one dimension.
struct Tap {
  Index place;
  Expr weight;  // none: all of it
};
using Taps = std::vector<Tap>;

// Input pixels per output pixel, in the precision torch computes it in.
template <typename Real>
double step_of(int64_t input, int64_t output, bool corners, double factor) {
  if (corners) return output > 1 ? static_cast<Real>(input - 1) / static_cast<Real>(output - 1) : 0;
  if (factor > 0) return static_cast<Real>(1 / factor);
  return static_cast<Real>(input) / static_cast<Real>(output);
}

// One dimension of an image.
struct Axis {
  Index at;  // of the output pixel
  int64_t input, output;
  double step;
  bool corners;  // the outermost pixels' centers are the ends, not their edges
};

Axis axis_of(const ElementQuery& q, size_t d, DType wide) {
  const int64_t input = q.type(0).sizes[d].known(), output = q.result().sizes[d].known();
  const bool corners = q.boolean(2);
  const double factor = q.number(d + 1, 0);
  const double step = wide == DType::f64 ? step_of<double>(input, output, corners, factor)
                                         : step_of<float>(input, output, corners, factor);
  return {q.at()[d], input, output, step, corners};
}

Expr source_of(ElementQuery& q, const Axis& axis, DType wide) {
  const Expr at = q.index_value(axis.at).to(wide);
  return axis.corners ? at * axis.step : (at + 0.5) * axis.step - 0.5;
}

Index pixel_at(ElementQuery& q, Expr place) { return q.builder().as_index(place.value); }

Taps linear_taps(ElementQuery& q, const Axis& axis, DType wide) {
  if (axis.input == axis.output) return {{axis.at, {}}};
  Expr source = source_of(q, axis, wide);
  if (!axis.corners) source = max(source, 0.0);
  const double last = static_cast<double>(axis.input - 1);
  const Expr low = min(source.to(DType::i64), last);
  const Expr weight = min(max(source - low.to(wide), 0.0), 1.0);
  return {{pixel_at(q, low), 1.0 - weight}, {pixel_at(q, min(low + 1.0, last)), weight}};
}

// Keys' kernel up to 1 from its center, and from there to 2.
constexpr double kSharp = -0.75;
Expr near_weight(Expr x) { return ((kSharp + 2) * x - (kSharp + 3)) * x * x + 1.0; }
Expr far_weight(Expr x) { return ((kSharp * x - 5 * kSharp) * x + 8 * kSharp) * x - 4 * kSharp; }

Taps cubic_taps(ElementQuery& q, const Axis& axis, DType wide) {
  const Expr source = source_of(q, axis, wide);
  const double last = static_cast<double>(axis.input - 1);
  const Expr middle = min(floor(source).to(DType::i64), last);
  const Expr right = min(max(source - middle.to(wide), 0.0), 1.0), left = 1.0 - right;
  const auto tap = [&](double offset, Expr weight) {
    return Tap{pixel_at(q, max(min(middle + offset, last), 0.0)), weight};
  };
  return {tap(-1, far_weight(right + 1.0)), tap(0, near_weight(right)), tap(1, near_weight(left)),
          tap(2, far_weight(left + 1.0))};
}

using TapsRule = Taps (*)(ElementQuery& q, const Axis& axis, DType wide);

// The taps from dimension d on, at a place whose dimensions before are known.
Expr blended(ElementQuery& q, const std::vector<Taps>& taps, size_t d, Indices& place, DType wide) {
  if (d == taps.size()) return q.load(q.value(0), place).to(wide);
  Expr total;
  for (const Tap& tap : taps[d]) {
    place[d + 2] = tap.place;
    Expr part = blended(q, taps, d + 1, place, wide);
    if (tap.weight.builder) part = part * tap.weight;
    total = total.builder ? total + part : part;
  }
  return total;
}

template <TapsRule rule>
Expr interpolated(ElementQuery& q) {
  const DType wide = accumulate_of(q.result().dtype);
  std::vector<Taps> taps;
  for (size_t d = 2; d < q.at().size(); ++d) taps.push_back(rule(q, axis_of(q, d, wide), wide));
  Indices place = q.at();
  return blended(q, taps, 0, place, wide);
}

Decision allows_interpolated(const NodeReader& q) {
  for (int d = 2; d < q.result().rank(); ++d) {
    if (!q.type(0).sizes[d].is_known() || !q.result().sizes[d].is_known())
      return Decision::forbid("the sizes of the image are not known");
  }
  if (!all_certainly_positive(q.type(0).sizes)) return Decision::forbid("an empty image");
  return Decision::allow();
}

// Vectors are pixels of a row, or channels where these are next to each other. ATen's kernels are
// as fast where the pixels would be gathered one by one, or the channels are few. (Its cubic ones
// are nowhere.)
Decision allows_linear(const NodeReader& q) {
  const TensorType& result = q.result();
  const int64_t few = result.rank() == 5 ? 64 : 16;
  const bool rows = result.strides.back().is(1);
  if (rows && loops::is_half(result.dtype)) return Decision::forbid("pixels of two bytes");
  const auto channels = result.sizes[1].as_known();
  if (!rows && !(channels && *channels >= few)) return Decision::forbid("few channels");
  return allows_interpolated(q);
}

// --- nearest ---

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

constexpr Meaning linear(std::string_view name, int cost) {
  return elsewhere(Pattern::gather, name, interpolated<linear_taps>, allows_linear, cost);
}

constexpr Meaning kRows[] = {
    linear("aten::upsample_linear1d", kCompound),
    linear("aten::upsample_bilinear2d", 2 * kCompound),
    linear("aten::upsample_trilinear3d", 4 * kCompound),
    elsewhere(Pattern::gather, "aten::upsample_bicubic2d", interpolated<cubic_taps>,
              allows_interpolated, 6 * kCompound),
    {.name = "aten::upsample_nearest1d_backward", .decompose = nearest_gradient<1>},
    {.name = "aten::upsample_nearest2d_backward", .decompose = nearest_gradient<2>},
    {.name = "aten::upsample_nearest3d_backward", .decompose = nearest_gradient<3>},
};

}  // namespace

std::span<const Meaning> interpolate_meanings() { return kRows; }

}  // namespace smelt
