// Pooling. A window that slides is written out, element by element; windows that lie side by side
// are dimensions of a view, which is reduced.
#include <algorithm>
#include <limits>

#include "ops/decompose.h"
#include "ops/element.h"
#include "ops/layout.h"
#include "ops/meaning_families.h"
#include "ops/windows.h"

namespace smelt {
namespace {

// A larger window is a loop in PyTorch's kernel, and should be one.
constexpr int64_t kMostOffsets = 32;

// The lists of a pooling op; one number stands for all dimensions.
struct WindowArgs {
  size_t kernel, stride, pad;
  std::optional<size_t> dilation;
};

// Nothing where a size is not known.
std::optional<Windows> windows_of(const NodeReader& q, const WindowArgs& args,
                                  const TensorType& input, const TensorType& output, int spatial) {
  const auto at = [&](size_t arg, int d, int64_t otherwise) {
    const std::vector<int64_t> list = q.integers(arg);
    return list.empty() ? otherwise : list.size() == 1 ? list[0] : list[d];
  };
  Windows windows;
  for (int d = 0; d < spatial; ++d) {
    const Size& from = input.sizes[input.rank() - spatial + d];
    const Size& to = output.sizes[output.rank() - spatial + d];
    if (!from.is_known() || !to.is_known()) return std::nullopt;
    Window window;
    window.kernel = at(args.kernel, d, 1);
    window.stride = at(args.stride, d, window.kernel);
    window.pad = at(args.pad, d, 0);
    if (args.dilation) window.dilation = at(*args.dilation, d, 1);
    window.input = from.known();
    window.output = to.known();
    windows.push_back(window);
  }
  return windows;
}

std::vector<int64_t> kernels_of(const Windows& windows) {
  std::vector<int64_t> kernels;
  for (const Window& window : windows) kernels.push_back(window.kernel);
  return kernels;
}

Index offset_index(const Index& at, const Window& window, int64_t offset) {
  return at * Size(window.stride) + Index(Size(offset * window.dilation - window.pad));
}

// --- averages ---

struct Divisor {
  bool includes_pad = true;
  std::optional<int64_t> given;
};

// (.., ceil_mode, count_include_pad, divisor_override), the second at argument `first`.
Divisor divisor_of(const NodeReader& q, size_t first) {
  Divisor divisor{.includes_pad = q.boolean(first, true), .given = std::nullopt};
  if (!q.is_none(first + 1)) divisor.given = q.integer(first + 1);
  return divisor;
}

// What the sum of the window that begins at `at` is divided by.
Expr divisor_at(ElementQuery& q, const Windows& windows, const Divisor& divisor,
                std::span<const Index> at, DType dtype) {
  if (divisor.given) return q.constant(dtype, *divisor.given);
  int64_t known = 1;
  Expr count;
  for (size_t d = 0; d < windows.size(); ++d) {
    const Window& w = windows[d];
    const int64_t last = (w.output - 1) * w.stride - w.pad + w.kernel;
    const bool whole = divisor.includes_pad ? last <= w.input + w.pad : !w.leaves();
    if (whole) {
      known *= w.kernel;
      continue;
    }
    const Expr begin = q.index_value(offset_index(at[d], w, 0));
    Expr end = min(begin + static_cast<double>(w.kernel), static_cast<double>(w.input + w.pad));
    Expr length = end - begin;
    if (!divisor.includes_pad) length = min(end, static_cast<double>(w.input)) - max(begin, 0.0);
    count = count.builder ? count * length : length;
  }
  if (!count.builder) return q.constant(dtype, known);
  return (known == 1 ? count : count * static_cast<double>(known)).to(dtype);
}

// avg_pool*(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
constexpr WindowArgs kPoolArgs{1, 2, 3, std::nullopt};

template <int spatial>
Expr average_pool(ElementQuery& q) {
  const Windows windows = *windows_of(q, kPoolArgs, q.type(0), q.result(), spatial);
  const size_t lead = q.at().size() - spatial;
  const DType wide = accumulate_of(q.result().dtype);
  Expr total;
  each_offset(kernels_of(windows), [&](const std::vector<int64_t>& offset) {
    Indices place = q.at();
    Condition inside;
    for (size_t d = 0; d < windows.size(); ++d) {
      const Window& w = windows[d];
      const Index index = offset_index(q.at()[lead + d], w, offset[d]);
      if (offset[d] < w.pad) inside.add(is_at_least(q, index, 0));
      if ((w.output - 1) * w.stride - w.pad + offset[d] >= w.input)
        inside.add(is_below(q, index, w.input));
      place[lead + d] = clamped_index(q, index, w.input);
    }
    Expr element = q.load(q.value(0), place).to(wide);
    if (inside.all.builder) element = select(inside.all, element, 0.0);
    total = total.builder ? total + element : element;
  });
  const std::span<const Index> at = std::span(q.at()).subspan(lead);
  return total / divisor_at(q, windows, divisor_of(q, 5), at, wide);
}

// (grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
constexpr WindowArgs kGradientArgs{2, 3, 4, std::nullopt};

// How many windows may have one element of the input, along a dimension. (Not at most as many as
// there are: the last that could have it may be one behind the input's end.)
std::vector<int64_t> covers_of(const Windows& windows) {
  std::vector<int64_t> covers;
  for (const Window& w : windows) covers.push_back((w.kernel + w.stride - 1) / w.stride);
  return covers;
}

// The sum over the windows that have the element.
template <int spatial>
Expr average_pool_gradient(ElementQuery& q) {
  const Windows windows = *windows_of(q, kGradientArgs, q.type(1), q.type(0), spatial);
  const size_t lead = q.at().size() - spatial;
  const DType wide = accumulate_of(q.result().dtype);
  const Divisor divisor = divisor_of(q, 6);
  Expr total;
  each_offset(covers_of(windows), [&](const std::vector<int64_t>& back) {
    Indices place = q.at();
    Condition inside;
    for (size_t d = 0; d < windows.size(); ++d) {
      const Window& w = windows[d];
      const Index from = q.at()[lead + d] + Index(Size(w.pad));
      const Index number = quotient(from, w.stride, q.extents()) - Index(Size(back[d]));
      const Index inner = remainder(from, w.stride, q.extents());
      if (back[d] > 0) inside.add(is_at_least(q, number, 0));
      if ((w.input - 1 + w.pad) / w.stride - back[d] >= w.output)
        inside.add(is_below(q, number, w.output));
      const int64_t left = w.kernel - back[d] * w.stride;  // of the window behind its begin
      if (left < w.stride) inside.add(is_below(q, inner, left));
      place[lead + d] = clamped_index(q, number, w.output);
    }
    Expr element = q.load(q.value(0), place).to(wide);
    const std::span<const Index> at = std::span(place).subspan(lead);
    element = element / divisor_at(q, windows, divisor, at, wide);
    if (inside.all.builder) element = select(inside.all, element, 0.0);
    total = total.builder ? total + element : element;
  });
  return total;
}

Decision allows_windows(const std::optional<Windows>& windows) {
  if (!windows) return Decision::forbid("the sizes of the image are not known");
  if (offsets_in(*windows) > kMostOffsets) return Decision::forbid("a large window");
  return Decision::allow();
}

template <int spatial>
Decision allows_average(const NodeReader& q) {
  return allows_windows(windows_of(q, kPoolArgs, q.type(0), q.result(), spatial));
}

template <int spatial>
Decision allows_average_gradient(const NodeReader& q) {
  return allows_windows(windows_of(q, kGradientArgs, q.type(1), q.type(0), spatial));
}

// --- maxima ---

// max_pool2d(self, kernel_size, stride, padding, dilation, ceil_mode)
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

// max_pool2d_with_indices_backward(grad_output, self, kernel_size, stride, padding, dilation,
// ceil_mode, indices): an index is a place in the last two dimensions as one.
UpdateForm max_gradient_form(const NodeReader& q) {
  return {.points = q.type(0).sizes, .base = std::nullopt, .combine = loops::Reduction::sum};
}

UpdatedElement max_gradient(ElementQuery& q) {
  const Sizes& sizes = q.result().sizes;
  const Sizes image(sizes.end() - 2, sizes.end());
  const Index flat = q.checked_index(q.load(q.value(7), q.at()), product(image), false);
  Indices place(q.at().begin(), q.at().end() - 2);
  for (const Index& index : loops::unravel(flat, image, q.extents())) place.push_back(index);
  return {place, q.load(q.value(0), q.at())};
}

// Walked image by image, which suits a layout of images only.
Decision allows_max_gradient(const NodeReader& q) {
  if (q.result().strides != contiguous_strides(q.result().sizes))
    return Decision::forbid("channels are next to each other");
  if (loops::is_half(q.result().dtype)) return Decision::forbid("each sum would be rounded");
  return Decision::allow();
}

constexpr UpdateRule kMaxGradient{max_gradient_form, max_gradient, allows_max_gradient};

// --- windows side by side ---

bool lie_side_by_side(const std::optional<Windows>& windows) {
  return windows && std::ranges::all_of(*windows, &Window::lies_side_by_side);
}

template <int spatial>
bool average_apart(DecomposeQuery& q) {
  const auto windows = windows_of(q, kPoolArgs, q.type(0), q.result(), spatial);
  if (!lie_side_by_side(windows)) return false;
  return average_side_by_side(q, *windows, divisor_of(q, 5).given.value_or(offsets_in(*windows)));
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

bool finds_places(const DecomposeQuery& q, const std::optional<Windows>& windows) {
  if (!windows || offsets_in(*windows) > kMostCompared || !is_plain_float(q.type(0))) return false;
  if ((*windows)[0].input * (*windows)[1].input >= kMostPlaces) return false;
  return std::ranges::none_of(*windows,
                              [](const Window& w) { return w.dilation > 1 && w.pad > 0; });
}

// Each element of a window is compared with the largest before it; of equal ones the first counts,
// and of NaN the last. Where there is nothing but -infinity that is the first inside the image.
bool max_pool_places(DecomposeQuery& q, const Windows& windows) {
  const Window &high = windows[0], &wide = windows[1];
  const Term rows = unsqueeze(counted(q, high, wide.input), 1), columns = counted(q, wide, 1);
  const Term start = rows + columns;
  const auto inside = [&](Term x) { return write(q, "aten::clamp_min", {x.ref(), 0}); };
  Term behind = inside(rows) + inside(columns) - start, most{};
  each_offset(kernels_of(windows), [&](const std::vector<int64_t>& offset) {
    const Term element = at_offset(q, windows, offset);
    if (most.q == nullptr) {
      most = element;
      return;
    }
    const Term more = write(q, "aten::gt.Tensor", {element.ref(), most.ref()});
    const Term is_nan = write(q, "aten::isnan", {element.ref()});
    const Term hit = write(q, "aten::logical_or", {more.ref(), is_nan.ref()});
    const int64_t steps = offset[0] * high.dilation * wide.input + offset[1] * wide.dilation;
    behind =
        write(q, "aten::where.ScalarSelf", {hit.ref(), static_cast<double>(steps), behind.ref()});
    most = select(hit, element, most);
  });
  if (behind.type().sizes != q.result(1).sizes) return false;  // windows of one element
  give(q, 0, most);
  give(q, 1, cast(start + behind, DType::i64));
  return true;
}

// The values only: of windows side by side by a reduction, else by an op that has no indices.
bool max_pool_values(DecomposeQuery& q) {
  if (is_wanted(q, 1)) {
    if (!is_wanted(q, 0) || !q.type(0).sizes.back().is_known()) return false;
    const auto windows = windows_of(q, kMaxArgs, q.type(0), q.result(), 2);
    return finds_places(q, windows) && max_pool_places(q, *windows);
  }
  if (!is_wanted(q, 0)) return false;
  const auto windows = windows_of(q, kMaxArgs, q.type(0), q.result(), 2);
  if (lie_side_by_side(windows)) {
    Dims inside;
    const Term viewed = window_view(argument(q, 0), *windows, inside);
    give(q, 0, largest(viewed, inside, false));
    return true;
  }
  give(q, 0,
       write(q, "aten::max_pool2d", {q.arg(0), q.arg(1), q.arg(2), q.arg(3), q.arg(4), q.arg(5)}));
  return true;
}

constexpr Meaning sliding(std::string_view name, ElementRule rule,
                          Decision (*allows)(const NodeReader&), DecomposeRule apart = nullptr) {
  Meaning row = elsewhere(Pattern::gather, name, rule, allows, kCompound);
  row.decompose = apart;
  return row;
}

constexpr Meaning kRows[] = {
    sliding("aten::avg_pool2d", average_pool<2>, allows_average<2>, average_apart<2>),
    sliding("aten::avg_pool3d", average_pool<3>, allows_average<3>, average_apart<3>),
    sliding("aten::avg_pool2d_backward", average_pool_gradient<2>, allows_average_gradient<2>),
    sliding("aten::avg_pool3d_backward", average_pool_gradient<3>, allows_average_gradient<3>),
    sliding("aten::max_pool2d", max_pool<2>, allows_max<2>),
    {.name = "aten::max_pool2d_with_indices", .decompose = max_pool_values},
    {.name = "aten::max_pool2d_with_indices_backward", .update = &kMaxGradient},
};

}  // namespace

std::span<const Meaning> pool_meanings() { return kRows; }

}  // namespace smelt
