// Averages of windows. A window that slides is written out, element by element; windows that lie
// side by side are dimensions of a view, which is reduced.
#include <algorithm>

#include "ops/meanings/families.h"
#include "ops/meanings/windows.h"
#include "ops/rules/decompose.h"
#include "ops/rules/element.h"

namespace smelt {
namespace {

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

template <int spatial>
Decision allows_average(const NodeReader& q) {
  return allows_windows(windows_of(q, kPoolArgs, q.type(0), q.result(), spatial));
}

template <int spatial>
Decision allows_average_gradient(const NodeReader& q) {
  return allows_windows(windows_of(q, kGradientArgs, q.type(1), q.type(0), spatial));
}

// --- windows side by side ---

template <int spatial>
bool average_apart(DecomposeQuery& q) {
  const auto windows = windows_of(q, kPoolArgs, q.type(0), q.result(), spatial);
  if (!lie_side_by_side(windows)) return false;
  return average_side_by_side(q, *windows, divisor_of(q, 5).given.value_or(offsets_in(*windows)));
}

constexpr Meaning sliding(std::string_view name, ElementRule rule,
                          Decision (*allows)(const NodeReader&), DecomposeRule apart = nullptr) {
  Meaning row = elsewhere(Pattern::gather, name, rule, allows, kCompound);
  row.decompose = apart;
  return row;
}

// The gradient of argument 1, whose elements don't matter.
constexpr Meaning gradient(Meaning row) {
  row.unread = 1u << 1;
  return row;
}

constexpr Meaning kRows[] = {
    sliding("aten::avg_pool2d", average_pool<2>, allows_average<2>, average_apart<2>),
    sliding("aten::avg_pool3d", average_pool<3>, allows_average<3>, average_apart<3>),
    gradient(
        sliding("aten::avg_pool2d_backward", average_pool_gradient<2>, allows_average_gradient<2>)),
    gradient(
        sliding("aten::avg_pool3d_backward", average_pool_gradient<3>, allows_average_gradient<3>)),
};

}  // namespace

std::span<const Meaning> pool_meanings() { return kRows; }

}  // namespace smelt
