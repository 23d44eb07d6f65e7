// Interpolation between pixels: linear and cubic.
#include "ops/meanings/families.h"
#include "ops/meanings/interpolation.h"
#include "ops/rules/element.h"

namespace smelt {
namespace {

// --- linear and cubic (self, output_size, align_corners, scales..) ---

// What an output pixel has of the input along one dimension.
struct Tap {
  Index place;
  Expr weight;  // none: all of it
};
using Taps = std::vector<Tap>;

Axis axis_of(const ElementQuery& q, size_t d, DType wide) {
  return axis_of(q.type(0).sizes[d].known(), q.result().sizes[d].known(), q.boolean(2),
                 q.number(d + 1, 0), wide);
}

Index pixel_at(ElementQuery& q, Expr place) { return q.builder().as_index(place.value); }

Taps linear_taps(ElementQuery& q, const Axis& axis, const Index& at, DType wide) {
  if (axis.input == axis.output) return {{at, {}}};
  Expr source = source_of(q, axis, at, wide);
  if (!axis.corners) source = max(source, 0.0);
  const double last = static_cast<double>(axis.input - 1);
  const Expr low = min(source.to(DType::i64), last);
  const Expr weight = min(max(source - low.to(wide), 0.0), 1.0);
  return {{pixel_at(q, low), 1.0 - weight}, {pixel_at(q, min(low + 1.0, last)), weight}};
}

Taps cubic_taps(ElementQuery& q, const Axis& axis, const Index& at, DType wide) {
  Taps taps;
  for (const CubicTap& tap : cubic_taps_of(q, axis, at, wide))
    taps.push_back({pixel_at(q, tap.place), tap.weight});
  return taps;
}

using TapsRule = Taps (*)(ElementQuery& q, const Axis& axis, const Index& at, DType wide);

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
  for (size_t d = 2; d < q.at().size(); ++d)
    taps.push_back(rule(q, axis_of(q, d, wide), q.at()[d], wide));
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

constexpr Meaning linear(std::string_view name, int cost) {
  return elsewhere(Pattern::gather, name, interpolated<linear_taps>, allows_linear, cost);
}

constexpr Meaning kRows[] = {
    linear("aten::upsample_linear1d", kCompound),
    linear("aten::upsample_bilinear2d", 2 * kCompound),
    linear("aten::upsample_trilinear3d", 4 * kCompound),
    elsewhere(Pattern::gather, "aten::upsample_bicubic2d", interpolated<cubic_taps>,
              allows_interpolated, 6 * kCompound),
};

}  // namespace

std::span<const Meaning> interpolate_meanings() { return kRows; }

}  // namespace smelt
