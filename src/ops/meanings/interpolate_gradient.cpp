// Gradients of interpolation: an input pixel adds up the gradients of the output pixels that read
// it, which are neighbours.
//
// Along a dimension these begin about where a line says, and there are at most so many of them.
// Both is found by going through the output pixels (`reach_of`), with some slack: whether an output
// pixel does read the input pixel, and with which weight, is computed by the kernel, with the
// forward's arithmetic. Several dimensions of rows are summed one after the other, the last one
// last: its pixels are read with strides, and are the fewest then.
#include <algorithm>
#include <cmath>

#include "ops/meanings/families.h"
#include "ops/meanings/interpolation.h"
#include "ops/meanings/windows.h"
#include "ops/rules/decompose.h"
#include "ops/rules/element.h"

namespace smelt {
namespace {

// Longer sums are loops in PyTorch's kernels, and should be.
constexpr int64_t kMostReaders = 32;
// Of several dimensions at once.
constexpr int64_t kMostAtOnce = 16;
// Their pixels are gone through one by one.
constexpr int64_t kMostPixels = 65536;

enum class Form : uint8_t { linear, cubic, nearest, nearest_exact };
constexpr bool is_nearest(Form form) { return form >= Form::nearest; }
constexpr Nearest nearest_of(Form form) {
  return form == Form::nearest ? Nearest::classic : Nearest::exact;
}

// upsample_*_backward(grad_output, output_size, input_size, [align_corners], scales..)
constexpr size_t first_scale(Form form) { return is_nearest(form) ? 3 : 4; }
double factor_at(const NodeReader& q, Form form, size_t d) {
  return q.number(first_scale(form) + d - 2, 0);
}

Axis axis_at(const NodeReader& q, Form form, size_t d) {
  const bool corners = !is_nearest(form) && q.boolean(3);
  const DType wide = is_nearest(form) ? DType::f32 : accumulate_of(q.type(0).dtype);
  return axis_of(q.result().sizes[d].known(), q.type(0).sizes[d].known(), corners,
                 factor_at(q, form, d), wide);
}

// Does each output pixel read its own input pixel only?
bool is_identity(const Axis& axis, Form form) {
  if (axis.input != axis.output) return false;
  return form == Form::linear || form == Form::nearest || axis.step == 1;
}

// The output pixels that may read input pixel i: `count` from (i * rise >> shift) + offset on.
struct Reach {
  int64_t rise = 1, shift = 0, offset = 0, count = 1;
  int64_t begin(int64_t i) const { return ((i * rise) >> shift) + offset; }
};

// A line that rises as fast as the output does: by whole pixels if it may.
Reach line_of(const Axis& axis) {
  if (axis.step <= 0) return {.rise = 0};
  const double rise = 1 / axis.step, whole = std::round(rise);
  if (std::abs(rise - whole) * static_cast<double>(axis.input) < 0.5)
    return {.rise = static_cast<int64_t>(whole)};
  constexpr int kFraction = 16;
  return {.rise = std::llround(std::ldexp(rise, kFraction)), .shift = kFraction};
}

// The first and last input pixel that an output pixel may read, whatever rounding does.
std::pair<int64_t, int64_t> read_by(const Axis& axis, Form form, int64_t pixel) {
  const auto at = static_cast<double>(pixel);
  const double slack = std::max(1e-4, 1e-6 * static_cast<double>(axis.input));
  double source = axis.corners ? at * axis.step : (at + 0.5) * axis.step - 0.5;
  if (form == Form::nearest) source = at * axis.step;
  if (form == Form::nearest_exact) source += 0.5;
  auto first = static_cast<int64_t>(std::floor(source - slack));
  auto last = static_cast<int64_t>(std::floor(source + slack));
  if (form == Form::linear) last += 1;
  if (form == Form::cubic) first -= 1, last += 2;
  const auto inside = [&](int64_t i) { return std::clamp<int64_t>(i, 0, axis.input - 1); };
  return {inside(first), inside(last)};
}

Reach reach_of(const Axis& axis, Form form) {
  Reach reach = line_of(axis);
  std::vector<int64_t> first(axis.input, axis.output), last(axis.input, -1);
  for (int64_t pixel = 0; pixel < axis.output; ++pixel) {
    const auto [low, high] = read_by(axis, form, pixel);
    for (int64_t i = low; i <= high; ++i) {
      first[i] = std::min(first[i], pixel);
      last[i] = std::max(last[i], pixel);
    }
  }
  int64_t offset = axis.output, end = -axis.output;
  for (int64_t i = 0; i < axis.input; ++i) {
    if (last[i] < 0) continue;
    offset = std::min(offset, first[i] - reach.begin(i));
    end = std::max(end, last[i] - reach.begin(i));
  }
  reach.offset = offset;
  reach.count = end - offset + 1;
  return reach;
}

// What an input pixel gets of an output pixel.
struct Share {
  Condition reads;
  Expr weight;  // none: all of it
};

Share linear_share(ElementQuery& q, const Axis& axis, const Index& pixel, const Index& at,
                   DType wide) {
  Expr source = source_of(q, axis, pixel, wide);
  if (!axis.corners) source = max(source, 0.0);
  source = min(source, static_cast<double>(axis.input - 1));
  const Expr apart = source - q.index_value(at).to(wide);
  return {{(apart >= -1.0) & (apart < 1.0)}, 1.0 - abs(apart)};
}

// Taps that leave the image are the pixels at its ends once more.
Share cubic_share(ElementQuery& q, const Axis& axis, const Index& pixel, const Index& at,
                  DType wide) {
  Share share;
  Expr any;
  for (const CubicTap& tap : cubic_taps_of(q, axis, pixel, wide)) {
    const Expr here = tap.place == q.index_value(at);
    const Expr weight = select(here, tap.weight, 0.0);
    any = any.builder ? any | here : here;
    share.weight = share.weight.builder ? share.weight + weight : weight;
  }
  share.reads.add(any);
  return share;
}

Share share_of(ElementQuery& q, Form form, size_t d, const Index& pixel, DType wide) {
  const Index& at = q.at()[d];
  const Axis axis = axis_at(q, form, d);
  if (form == Form::linear) return linear_share(q, axis, pixel, at, wide);
  if (form == Form::cubic) return cubic_share(q, axis, pixel, at, wide);
  const Expr source =
      nearest_pixel(q, nearest_of(form), pixel, axis.input, axis.output, factor_at(q, form, d));
  return {{source == q.index_value(at)}, {}};
}

// The dimensions along which the image was resized. (A cubic gradient of the image's own size is a
// copy, whatever the factors are.)
std::vector<size_t> resized_dims(const NodeReader& q, Form form) {
  std::vector<size_t> dims;
  if (form == Form::cubic && q.result().sizes == q.type(0).sizes) return dims;
  for (size_t d = 2; d < q.result().sizes.size(); ++d)
    if (!is_identity(axis_at(q, form, d), form)) dims.push_back(d);
  return dims;
}

// The sum over dims[first] and those behind it, at a place whose dimensions before are known.
Expr summed(ElementQuery& q, Form form, const std::vector<size_t>& dims, size_t first,
            Indices& place, DType wide) {
  if (first == dims.size()) return q.load(q.value(0), place).to(wide);
  const size_t d = dims[first];
  const Axis axis = axis_at(q, form, d);
  const Reach reach = reach_of(axis, form);
  const Index line = quotient(q.at()[d] * Size(reach.rise), int64_t{1} << reach.shift, q.extents());
  Expr total;
  for (int64_t i = 0; i < reach.count; ++i) {
    const Index pixel = line + Index(Size(reach.offset + i));
    Share share = share_of(q, form, d, pixel, wide);
    if (reach.begin(0) + i < 0) share.reads.add(is_at_least(q, pixel, 0));
    if (reach.begin(axis.input - 1) + i >= axis.output)
      share.reads.add(is_below(q, pixel, axis.output));
    place[d] = clamped_index(q, pixel, axis.output);
    Expr part = summed(q, form, dims, first + 1, place, wide);
    if (share.weight.builder) part = part * share.weight;
    part = select(share.reads.all, part, 0.0);
    total = total.builder ? total + part : part;
  }
  return total;
}

template <Form form>
Expr gradient(ElementQuery& q) {
  Indices place = q.at();
  return summed(q, form, resized_dims(q, form), 0, place, accumulate_of(q.result().dtype));
}

// Are the sizes known, and the sums short?
Decision has_short_sums(const NodeReader& q, Form form) {
  for (size_t d = 2; d < q.result().sizes.size(); ++d) {
    const auto input = q.result().sizes[d].as_known(), output = q.type(0).sizes[d].as_known();
    if (!input || !output || *input < 1 || *output < 1)
      return Decision::forbid("the sizes of the image are not known");
    if (*input > kMostPixels || *output > kMostPixels) return Decision::forbid("a large image");
    const Axis axis = axis_at(q, form, d);
    if (is_identity(axis, form)) continue;
    if (is_nearest(form) && axis.output < axis.input)
      return Decision::forbid("most pixels are read by none");
    if (form == Form::cubic && axis.input == axis.output)
      return Decision::forbid("a factor that the sizes do not show");
    if (reach_of(axis, form).count > kMostReaders)
      return Decision::forbid("a pixel is read by many");
  }
  return Decision::allow();
}

// Are the sums of all dimensions one? Where channels are next to each other, their pixels are read
// by whole vectors, and what is computed in between is more to write and read.
bool is_one_sum(const NodeReader& q, Form form, const std::vector<size_t>& dims) {
  if (dims.size() < 2) return true;
  int64_t readers = 1;
  for (const size_t d : dims) readers *= reach_of(axis_at(q, form, d), form).count;
  return !q.result().strides.back().is(1) && readers <= kMostAtOnce;
}

template <Form form>
Decision allows_gradient(const NodeReader& q) {
  if (Decision made = has_short_sums(q, form); !made) return made;
  if (!is_one_sum(q, form, resized_dims(q, form)))
    return Decision::forbid("summed along several dimensions");
  return Decision::allow();
}

// Is every input pixel read by as many neighbours?
bool repeats_evenly(const Axis& axis, Form form, double factor) {
  if (axis.output % axis.input != 0) return false;
  const int64_t times = axis.output / axis.input;
  for (int64_t pixel = 0; pixel < axis.output; ++pixel) {
    if (nearest_pixel(nearest_of(form), pixel, axis.input, axis.output, factor) != pixel / times)
      return false;
  }
  return true;
}

// Nearest pixels that are repeated evenly, in rows, are the sums over dimensions of a view.
bool sums_of_view(DecomposeQuery& q, Form form) {
  if (!q.result().strides.back().is(1) || loops::is_half(q.result().dtype)) return false;
  Sizes sizes(q.result().sizes.begin(), q.result().sizes.begin() + 2);
  Dims inside;
  for (size_t d = 2; d < q.result().sizes.size(); ++d) {
    const Axis axis = axis_at(q, form, d);
    if (!repeats_evenly(axis, form, factor_at(q, form, d))) return false;
    sizes.emplace_back(axis.input);
    inside.push_back(static_cast<int64_t>(sizes.size()));
    sizes.emplace_back(axis.output / axis.input);
  }
  give(q, 0, sum(view(wide_argument(q, 0), sizes), inside, false));
  return true;
}

Arg listed(const Sizes& sizes, size_t first) {
  ArgList list;
  for (size_t d = first; d < sizes.size(); ++d) list.emplace_back(sizes[d]);
  return list;
}

// The gradient along each dimension by itself.
template <Form form>
bool one_by_one(DecomposeQuery& q) {
  if (!has_short_sums(q, form)) return false;
  if (is_nearest(form) && sums_of_view(q, form)) return true;
  const std::vector<size_t> dims = resized_dims(q, form);
  if (is_one_sum(q, form, dims)) return false;
  Term grad = wide_argument(q, 0);
  for (const size_t d : dims) {
    std::vector<Arg> args(q.node().args.begin(), q.node().args.end());
    Sizes sizes = grad.type().sizes;
    args[0] = grad.ref();
    args[1] = listed(sizes, 2);
    sizes[d] = q.result().sizes[d];
    args[2] = listed(sizes, 0);
    for (size_t other = 2; other < sizes.size(); ++other)
      if (other != d) args[first_scale(form) + other - 2] = None{};
    grad = write(q, q.node().op.str(), std::move(args));
  }
  give(q, 0, grad);
  return true;
}

template <Form form>
constexpr Meaning gradient_of(std::string_view name) {
  Meaning row = elsewhere(Pattern::gather, name, gradient<form>, allows_gradient<form>, kCompound);
  row.decompose = one_by_one<form>;
  return row;
}

constexpr Meaning kRows[] = {
    gradient_of<Form::nearest_exact>("aten::_upsample_nearest_exact1d_backward"),
    gradient_of<Form::nearest_exact>("aten::_upsample_nearest_exact2d_backward"),
    gradient_of<Form::nearest_exact>("aten::_upsample_nearest_exact3d_backward"),
    gradient_of<Form::cubic>("aten::upsample_bicubic2d_backward"),
    gradient_of<Form::linear>("aten::upsample_bilinear2d_backward"),
    gradient_of<Form::linear>("aten::upsample_linear1d_backward"),
    gradient_of<Form::nearest>("aten::upsample_nearest1d_backward"),
    gradient_of<Form::nearest>("aten::upsample_nearest2d_backward"),
    gradient_of<Form::nearest>("aten::upsample_nearest3d_backward"),
    gradient_of<Form::linear>("aten::upsample_trilinear3d_backward"),
};

}  // namespace

std::span<const Meaning> interpolate_gradient_meanings() { return kRows; }

}  // namespace smelt
