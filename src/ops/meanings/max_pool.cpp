// Maxima of windows, alone or with their places in the image.
#include <algorithm>
#include <limits>

#include "ops/meanings/families.h"
#include "ops/meanings/windows.h"
#include "ops/rules/element.h"
#include "ops/rules/layout.h"

namespace smelt {
namespace {

// max_pool*(self, kernel_size, stride, padding, dilation, ceil_mode)
constexpr WindowArgs kMaxArgs{1, 2, 3, 4};

// Beside the input there is -infinity. An element that a window of neighbours would have there is
// replaced by the input's last one, which it has as well.
template <int spatial>
Expr max_pool(ElementQuery& q) {
  const Windows windows = *windows_of(q, kMaxArgs, q.type(0), q.result(), spatial);
  const size_t lead = q.at().size() - spatial;
  const DType wide = accumulate_of(q.result().dtype);
  Expr most;
  each_offset(kernels_of(windows), [&](const std::vector<int64_t>& offset) {
    Indices place = q.at();
    for (size_t d = 0; d < windows.size(); ++d) {
      const Index index = offset_index(q.at()[lead + d], windows[d], offset[d]);
      place[lead + d] = clamped_index(q, index, windows[d].input);
    }
    const Expr element = q.load(q.value(0), place).to(wide);
    most = most.builder ? max(most, element) : element;
  });
  return most;
}

template <int spatial>
Decision allows_max(const NodeReader& q) {
  const auto windows = windows_of(q, kMaxArgs, q.type(0), q.result(), spatial);
  if (Decision made = allows_windows(windows); !made) return made;
  const bool apart =
      std::ranges::any_of(*windows, [](const Window& w) { return w.dilation > 1 && w.leaves(); });
  if (apart) return Decision::forbid("a window with gaps at the border");
  return Decision::allow();
}

// The gradient of an image, whose places are its last dimensions as one:
// max_pool*_with_indices_backward (grad_output, self, kernel_size, stride, padding, dilation,
// ceil_mode, indices), and adaptive_max_pool*_backward(grad_output, self, indices).
UpdateForm max_gradient_form(const NodeReader& q) {
  return {.points = q.type(0).sizes, .base = std::nullopt, .combine = loops::Reduction::sum};
}

template <int spatial, size_t indices>
UpdatedElement max_gradient(ElementQuery& q) {
  const Sizes& sizes = q.result().sizes;
  const Sizes image(sizes.end() - spatial, sizes.end());
  const Index flat = q.checked_index(q.load(q.value(indices), q.at()), product(image), false);
  Indices place(q.at().begin(), q.at().end() - spatial);
  for (const Index& index : loops::unravel(flat, image, q.extents())) place.push_back(index);
  return {place, q.load(q.value(0), q.at())};
}

// Walked image by image, which suits a layout of images only.
Decision allows_max_gradient(const NodeReader& q) {
  if (!is_row_major(q.result())) return Decision::forbid("channels are next to each other");
  if (loops::is_half(q.result().dtype)) return Decision::forbid("each sum would be rounded");
  return Decision::allow();
}

template <int spatial, size_t indices>
constexpr UpdateRule kMaxGradient{max_gradient_form, max_gradient<spatial, indices>,
                                  allows_max_gradient};

// On a GPU each element of the image asks the windows that have it whether it is their maximum.
constexpr WindowArgs kGradientArgs{2, 3, 4, 5};
constexpr int64_t kMostAsked = 9;

// Of those windows there are so many along each dimension.
std::vector<int64_t> windows_around(const Windows& windows) {
  std::vector<int64_t> counts;
  for (const Window& w : windows) counts.push_back((w.kernel - 1) / w.stride + 1);
  return counts;
}

template <int spatial>
Expr asked_gradient(ElementQuery& q) {
  const Windows windows = *windows_of(q, kGradientArgs, q.result(), q.type(0), spatial);
  const size_t lead = q.at().size() - spatial;
  const Sizes& sizes = q.result().sizes;
  const Sizes image(sizes.end() - spatial, sizes.end());
  const Indices own(q.at().end() - spatial, q.at().end());
  const Expr here = q.index_value(loops::ravel(own, image));
  const DType wide = accumulate_of(q.result().dtype);
  Expr sum;
  each_offset(windows_around(windows), [&](const std::vector<int64_t>& before) {
    Indices place = q.at();
    Condition is_maximum;
    for (size_t d = 0; d < windows.size(); ++d) {
      const Window& w = windows[d];
      const Index window = loops::quotient(q.at()[lead + d] + Index(w.pad), w.stride, q.extents()) -
                           Index(before[d]);
      const Expr number = q.index_value(window);
      is_maximum.add(number >= 0.0);
      is_maximum.add(number < static_cast<double>(w.output));
      place[lead + d] = clamped_index(q, window, w.output);
    }
    is_maximum.add(q.load(q.value(7), place) == here);
    const Expr gradient =
        select(is_maximum.all, q.load(q.value(0), place).to(wide), q.constant(wide, 0.0));
    sum = sum.builder ? sum + gradient : gradient;
  });
  return sum;
}

template <int spatial>
Decision allows_asking(const NodeReader& q) {
  if (!q.result().device.is_cuda()) return Decision::forbid("few elements are maxima");
  const auto windows = windows_of(q, kGradientArgs, q.result(), q.type(0), spatial);
  if (!windows) return Decision::forbid("a size that is not known");
  int64_t asked = 1;
  for (const int64_t count : windows_around(*windows)) asked *= count;
  const auto is_apart = [](const Window& w) { return w.dilation != 1; };
  if (asked > kMostAsked || std::ranges::any_of(*windows, is_apart))
    return Decision::forbid("many windows have an element, or gaps");
  return Decision::allow();
}

// --- maxima with their places in the image ---

// The steps of a window along a dimension, as numbers that are added to a place.
Term counted(DecomposeQuery& q, const Window& w, int64_t times) {
  const Term number =
      write(q, "aten::arange", {Size(w.output), DType::f32, None{}, q.result().device, None{}});
  return number * static_cast<double>(w.stride * times) - static_cast<double>(w.pad * times);
}

// The element that each window has at an offset; beside the image -infinity. What is padded is the
// part of the image that windows have there, so that it has the result's domain.
Term at_offset(DecomposeQuery& q, const Windows& windows, const std::vector<int64_t>& offset) {
  Term x = argument(q, 0);
  ArgList pads;
  for (size_t d = windows.size(); d-- > 0;) {
    const Window& w = windows[d];
    const int64_t first = offset[d] * w.dilation - w.pad;  // of the first window
    const int64_t before = first < 0 ? (w.stride - 1 - first) / w.stride : 0;
    const int64_t begin = std::min(before * w.stride + first, w.input);
    const int64_t count = (w.input - begin + w.stride - 1) / w.stride;
    const auto dim = static_cast<int64_t>(x.type().sizes.size() - windows.size() + d);
    x = write(q, "aten::slice.Tensor",
              {x.ref(), Size(dim), Size(begin), Size(w.input), Size(w.stride)});
    pads.emplace_back(Size(before));
    pads.emplace_back(Size(w.output - before - count));
  }
  const double nothing = -std::numeric_limits<double>::infinity();
  x = write(q, "aten::constant_pad_nd", {x.ref(), std::move(pads), nothing});
  return cast(x, accumulate_of(q.type(0).dtype));
}

// Places are computed as floats, which are as wide as the elements: no image is larger than they
// count.
constexpr int64_t kMostPlaces = int64_t{1} << 24;
// Each element of a window is five nodes.
constexpr int64_t kMostCompared = 16;

int64_t places_in(const Windows& windows) {
  int64_t places = 1;
  for (const Window& w : windows) places *= w.input;
  return places;
}

bool finds_places(const DecomposeQuery& q, const std::optional<Windows>& windows) {
  if (!windows || offsets_in(*windows) > kMostCompared || !is_plain_float(q.type(0))) return false;
  if (places_in(*windows) >= kMostPlaces) return false;
  return std::ranges::none_of(*windows,
                              [](const Window& w) { return w.dilation > 1 && w.pad > 0; });
}

// How far apart neighbours along each dimension are, where the image is one row.
std::vector<int64_t> place_strides(const Windows& windows) {
  std::vector<int64_t> strides(windows.size(), 1);
  for (size_t d = windows.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * windows[d + 1].input;
  return strides;
}

// Each element of a window is compared with the largest before it; of equal ones the first counts,
// and of NaN the last. Where there is nothing but -infinity that is the first inside the image.
bool max_pool_places(DecomposeQuery& q, const Windows& windows) {
  const std::vector<int64_t> strides = place_strides(windows);
  const auto rank = static_cast<int>(windows.size());
  // As torch's kernel for cubes whose channels come last does, where it finds nothing greater.
  const bool forgets_depth = rank == 3 && !is_row_major(q.result());
  Term start{}, inside{}, most{};
  for (int d = 0; d < rank; ++d) {
    Term along = counted(q, windows[d], strides[d]);
    for (int after = d + 1; after < rank; ++after) along = unsqueeze(along, along.type().rank());
    const Term clamped = write(q, "aten::clamp_min", {along.ref(), 0});
    start = d == 0 ? along : start + along;
    inside = d == 0 || (d == 1 && forgets_depth) ? clamped : inside + clamped;
  }
  Term behind = inside - start;
  each_offset(kernels_of(windows), [&](const std::vector<int64_t>& offset) {
    const Term element = at_offset(q, windows, offset);
    if (most.q == nullptr) {
      most = element;
      if (!forgets_depth) return;
      const double nothing = -std::numeric_limits<double>::infinity();
      const Term found = write(q, "aten::ne.Scalar", {element.ref(), nothing});
      behind = write(q, "aten::where.ScalarSelf", {found.ref(), 0.0, behind.ref()});
      return;
    }
    const Term more = write(q, "aten::gt.Tensor", {element.ref(), most.ref()});
    const Term is_nan = write(q, "aten::isnan", {element.ref()});
    const Term hit = write(q, "aten::logical_or", {more.ref(), is_nan.ref()});
    int64_t steps = 0;
    for (int d = 0; d < rank; ++d) steps += offset[d] * windows[d].dilation * strides[d];
    behind =
        write(q, "aten::where.ScalarSelf", {hit.ref(), static_cast<double>(steps), behind.ref()});
    most = select(hit, element, most);
  });
  if (behind.type().sizes != q.result(1).sizes) return false;  // windows of one element
  give(q, 0, most);
  give(q, 1, cast(start + behind, DType::i64));
  return true;
}

// Is there one window, which is the image?
bool is_whole(const Windows& windows) {
  return std::ranges::all_of(windows, [](const Window& w) { return w.output == 1; }) &&
         places_in(windows) < kMostPlaces;
}

// The greatest element of an image: the first of equal ones, and the place of the last NaN.
bool greatest_of_image(DecomposeQuery& q, const Windows& windows) {
  const Term x = argument(q, 0);
  Sizes sizes = x.type().sizes;
  sizes.resize(sizes.size() - windows.size());
  const auto last = static_cast<int64_t>(sizes.size());
  sizes.emplace_back(places_in(windows));
  const Term row = view(x, sizes);
  const Term greatest = write(q, "aten::argmax", {row.ref(), last, true});
  give_viewed(q, 0, write(q, "aten::gather", {row.ref(), last, greatest.ref(), false}));
  if (!is_wanted(q, 1)) return true;
  const Term places =
      write(q, "aten::arange",
            {sizes.back(), accumulate_of(x.type().dtype), None{}, q.result().device, None{}});
  const Term is_nan = write(q, "aten::isnan", {row.ref()});
  const Term nan_places = write(q, "aten::where.ScalarOther", {is_nan.ref(), places.ref(), -1.0});
  const Term last_nan = largest(nan_places, {last}, true);
  give_viewed(q, 1, select(at_least(last_nan, 0), cast(last_nan, DType::i64), greatest));
  return true;
}

constexpr std::string_view kSliding[] = {"", "", "aten::max_pool2d", "aten::max_pool3d"};

Term slide(Term x, const ArgList& kernel) {
  return write(*x.q, kSliding[kernel.size()],
               {x.ref(), kernel, kernel, ArgList{Arg(0)}, ArgList{Arg(1)}, false});
}

// Written out in order; what is large dimension by dimension, the last one first: the first of equal
// elements in the first row that has one.
std::optional<Term> max_in_order(Term x, const Windows& windows) {
  ArgList kernel;
  for (const Window& w : windows) kernel.emplace_back(w.kernel);
  if (allows_windows(windows)) return slide(x, kernel);
  for (size_t d = windows.size(); d-- > 0;) {
    if (!allows_windows(Windows{windows[d]})) return std::nullopt;
    ArgList row(windows.size(), Arg(1));
    row[d] = kernel[d];
    x = slide(x, row);
  }
  return x;
}

// The values only, of windows side by side. Of 0 and -0 the first counts, so windows are written
// out, as small ones are where the channels come last, since neighbours are no elements of one
// window then. A reduction knows no order: it is for where nobody sees the sign of a zero
// (loose_extremes), or finds the place.
bool max_side_by_side(DecomposeQuery& q, const Windows& windows) {
  const bool loose = q.node().traits.loose || !is_floating(q.type(0).dtype);
  if (!loose && is_whole(windows) && is_row_major(q.type(0)) && !allows_windows(windows))
    return greatest_of_image(q, windows);
  if (!loose || (!is_row_major(q.result()) && allows_windows(windows))) {
    const auto most = max_in_order(argument(q, 0), windows);
    if (most) give(q, 0, *most);
    return most.has_value();
  }
  Dims inside;
  const Term viewed = window_view(argument(q, 0), windows, inside);
  give(q, 0, largest(viewed, inside, false));
  return true;
}

// The values only: of windows side by side, else by an op that has no indices.
template <int spatial>
bool max_pool_values(DecomposeQuery& q) {
  if (!is_wanted(q, 0) || !q.type(0).sizes.back().is_known()) return false;
  const auto windows = windows_of(q, kMaxArgs, q.type(0), q.result(), spatial);
  if (is_wanted(q, 1)) return finds_places(q, windows) && max_pool_places(q, *windows);
  if (lie_side_by_side(windows)) return max_side_by_side(q, *windows);
  give(q, 0,
       write(q, kSliding[spatial], {q.arg(0), q.arg(1), q.arg(2), q.arg(3), q.arg(4), q.arg(5)}));
  return true;
}

// --- adaptive_max_pool*(self, output_size) ---

// Of windows that are all the same.
template <int spatial>
bool adaptive_max(DecomposeQuery& q) {
  if (!is_wanted(q, 0) || !is_plain_float(q.type(0)) || !has_elements(q.type(0))) return false;
  const auto windows = even_windows(q.type(0), q.result(), spatial);
  if (!windows) return false;
  if (!is_wanted(q, 1)) return max_side_by_side(q, *windows);
  if (finds_places(q, windows)) return max_pool_places(q, *windows);
  return is_whole(*windows) && is_row_major(q.type(0)) && greatest_of_image(q, *windows);
}

template <int spatial>
constexpr Meaning sliding(std::string_view name) {
  return elsewhere(Pattern::gather, name, max_pool<spatial>, allows_max<spatial>, kCompound);
}

// The gradient of argument 1, whose elements don't matter.
template <int spatial, size_t indices>
constexpr Meaning gradient(std::string_view name) {
  return {.name = name, .update = &kMaxGradient<spatial, indices>, .unread = 1u << 1};
}

template <int spatial>
constexpr Meaning window_gradient(std::string_view name) {
  Meaning row =
      elsewhere(Pattern::gather, name, asked_gradient<spatial>, allows_asking<spatial>, kCompound);
  row.update = &kMaxGradient<spatial, 7>;
  row.unread = 1u << 1;
  return row;
}

constexpr Meaning kRows[] = {
    {.name = "aten::adaptive_max_pool2d", .decompose = adaptive_max<2>},
    {.name = "aten::adaptive_max_pool3d", .decompose = adaptive_max<3>},
    gradient<2, 2>("aten::adaptive_max_pool2d_backward"),
    gradient<3, 2>("aten::adaptive_max_pool3d_backward"),
    sliding<2>("aten::max_pool2d"),
    sliding<3>("aten::max_pool3d"),
    {.name = "aten::max_pool2d_with_indices", .decompose = max_pool_values<2>},
    {.name = "aten::max_pool3d_with_indices", .decompose = max_pool_values<3>},
    window_gradient<2>("aten::max_pool2d_with_indices_backward"),
    gradient<3, 7>("aten::max_pool3d_with_indices_backward"),
};

}  // namespace

std::span<const Meaning> max_pool_meanings() { return kRows; }

}  // namespace smelt
