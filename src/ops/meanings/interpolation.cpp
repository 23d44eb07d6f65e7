#include "ops/meanings/interpolation.h"

#include <algorithm>
#include <cmath>

namespace smelt {
namespace {

template <typename Real>
double step_of(int64_t input, int64_t output, bool corners, double factor) {
  if (corners) return output > 1 ? static_cast<Real>(input - 1) / static_cast<Real>(output - 1) : 0;
  if (factor > 0) return static_cast<Real>(1 / factor);
  return static_cast<Real>(input) / static_cast<Real>(output);
}

// Keys' kernel up to 1 from its center, and from there to 2.
constexpr double kSharp = -0.75;
Expr near_weight(Expr x) { return ((kSharp + 2) * x - (kSharp + 3)) * x * x + 1.0; }
Expr far_weight(Expr x) { return ((kSharp * x - 5 * kSharp) * x + 8 * kSharp) * x - 4 * kSharp; }

float nearest_step(int64_t input, int64_t output, double factor) {
  return static_cast<float>(step_of<float>(input, output, false, factor));
}

}  // namespace

Axis axis_of(int64_t input, int64_t output, bool corners, double factor, DType wide) {
  const double step = wide == DType::f64 ? step_of<double>(input, output, corners, factor)
                                         : step_of<float>(input, output, corners, factor);
  return {input, output, step, corners};
}

Expr source_of(ElementQuery& q, const Axis& axis, const Index& at, DType wide) {
  const Expr pixel = q.index_value(at).to(wide);
  return axis.corners ? pixel * axis.step : (pixel + 0.5) * axis.step - 0.5;
}

std::array<CubicTap, 4> cubic_taps_of(ElementQuery& q, const Axis& axis, const Index& at,
                                      DType wide) {
  const Expr source = source_of(q, axis, at, wide);
  const double last = static_cast<double>(axis.input - 1);
  const Expr middle = min(floor(source).to(DType::i64), last);
  const Expr right = min(max(source - middle.to(wide), 0.0), 1.0), left = 1.0 - right;
  const auto tap = [&](double offset, Expr weight) {
    return CubicTap{max(min(middle + offset, last), 0.0), weight};
  };
  return {tap(-1, far_weight(right + 1.0)), tap(0, near_weight(right)), tap(1, near_weight(left)),
          tap(2, far_weight(left + 1.0))};
}

Expr nearest_pixel(ElementQuery& q, Nearest form, const Index& index, int64_t input, int64_t output,
                   double factor) {
  if (form == Nearest::classic && output == input) return q.index_value(index);
  if (form == Nearest::classic && output == 2 * input)
    return q.index_value(quotient(index, 2, q.extents()));
  const auto step = static_cast<double>(nearest_step(input, output, factor));
  const Expr pixel = q.index_value(index);
  const Expr source = form == Nearest::classic
                          ? pixel.to(DType::f32) * step
                          : ((pixel.to(DType::f64) + 0.5) * step).to(DType::f32);
  return min(floor(source).to(DType::i64), static_cast<double>(input - 1));
}

int64_t nearest_pixel(Nearest form, int64_t index, int64_t input, int64_t output, double factor) {
  if (form == Nearest::classic && output == input) return index;
  if (form == Nearest::classic && output == 2 * input) return index / 2;
  const float step = nearest_step(input, output, factor);
  const float source =
      form == Nearest::classic
          ? static_cast<float>(index) * step
          : static_cast<float>((static_cast<double>(index) + 0.5) * static_cast<double>(step));
  return std::min(static_cast<int64_t>(std::floor(source)), input - 1);
}

}  // namespace smelt
