// Pooling to a given size: windows that lie side by side where the sizes divide, else windows that
// begin and end where the output's size says, and may overlap by one.
#include <algorithm>

#include "ops/meanings/families.h"
#include "ops/meanings/windows.h"
#include "ops/rules/element.h"
#include "ops/rules/layout.h"

namespace smelt {
namespace {

// --- even windows ---

// _adaptive_avg_pool*(self, output_size)
template <int spatial>
bool adaptive_average(DecomposeQuery& q) {
  const auto windows = even_windows(q.type(0), q.result(), spatial);
  return windows && average_side_by_side(q, *windows, offsets_in(*windows));
}

// _adaptive_avg_pool*_backward(grad_output, self): each element of a window gets its share.
template <int spatial>
bool adaptive_average_gradient(DecomposeQuery& q) {
  const auto windows = even_windows(q.type(1), q.type(0), spatial);
  if (!windows) return false;
  Term grad = wide_argument(q, 0) / static_cast<double>(offsets_in(*windows));
  Sizes sizes = q.type(0).sizes;
  const size_t lead = sizes.size() - spatial;
  for (int d = 0; d < spatial; ++d) {
    const size_t at = lead + 2 * d + 1;
    grad = unsqueeze(grad, static_cast<int64_t>(at));
    sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(at), Size((*windows)[d].kernel));
  }
  ArgList expanded;
  for (const Size& size : sizes) expanded.emplace_back(size);
  grad = write(q, "aten::expand", {grad.ref(), std::move(expanded), false});
  grad = write(q, "aten::clone", {grad.ref(), kContiguous});
  give_viewed(q, 0, cast(grad, q.result().dtype));
  return true;
}

// --- uneven windows ---

// More are a loop in PyTorch's kernel, and should be one.
constexpr int64_t kMostOffsets = 32;

int64_t begin_of(int64_t window, int64_t input, int64_t output) { return window * input / output; }
int64_t end_of(int64_t window, int64_t input, int64_t output) {
  return ((window + 1) * input + output - 1) / output;
}

// The length of the longest window.
int64_t longest(int64_t input, int64_t output) {
  int64_t most = 0;
  for (int64_t i = 0; i < output; ++i)
    most = std::max(most, end_of(i, input, output) - begin_of(i, input, output));
  return most;
}

// Where the window of an output element lies along one dimension.
struct Span {
  Index begin, end;
  int64_t input;
  bool even;  // all windows have the longest one's length
};

Span span_at(const ElementQuery& q, size_t d) {
  const int64_t input = q.type(0).sizes[d].known(), output = q.result().sizes[d].known();
  const Index from = q.at()[d] * Size(input);
  return {quotient(from, Size(output), q.extents()),
          quotient(from + Index(Size(input + output - 1)), Size(output), q.extents()), input,
          input % output == 0};
}

template <int spatial>
Expr adaptive_element(ElementQuery& q) {
  const size_t lead = q.at().size() - spatial;
  const DType wide = accumulate_of(q.result().dtype);
  std::vector<Span> spans;
  std::vector<int64_t> lengths;
  for (size_t d = lead; d < q.at().size(); ++d) {
    spans.push_back(span_at(q, d));
    lengths.push_back(longest(spans.back().input, q.result().sizes[d].known()));
  }
  Expr total;
  each_offset(lengths, [&](const std::vector<int64_t>& offset) {
    Indices place = q.at();
    Condition inside;
    for (size_t d = 0; d < spans.size(); ++d) {
      const Index index = spans[d].begin + Index(Size(offset[d]));
      if (!spans[d].even && offset[d] > 0)
        inside.add(q.index_value(index) < q.index_value(spans[d].end));
      place[lead + d] = clamped_index(q, index, spans[d].input);
    }
    Expr element = q.load(q.value(0), place).to(wide);
    if (inside.all.builder) element = select(inside.all, element, 0.0);
    total = total.builder ? total + element : element;
  });
  for (const Span& span : spans) total = total / q.index_value(span.end - span.begin).to(wide);
  return total;
}

template <int spatial>
Decision allows_adaptive(const NodeReader& q) {
  int64_t offsets = 1;
  for (int d = q.result().rank() - spatial; d < q.result().rank(); ++d) {
    const auto input = q.type(0).sizes[d].as_known(), output = q.result().sizes[d].as_known();
    if (!input || !output || *input < 1 || *output < 1)
      return Decision::forbid("the sizes of the image are not known");
    offsets *= longest(*input, *output);
  }
  if (offsets > kMostOffsets) return Decision::forbid("a large window");
  return Decision::allow();
}

template <int spatial>
constexpr Meaning adaptive(std::string_view name) {
  Meaning row = elsewhere(Pattern::gather, name, adaptive_element<spatial>,
                          allows_adaptive<spatial>, kCompound);
  row.decompose = adaptive_average<spatial>;
  return row;
}

constexpr Meaning kRows[] = {
    adaptive<2>("aten::_adaptive_avg_pool2d"),
    adaptive<3>("aten::_adaptive_avg_pool3d"),
    {.name = "aten::_adaptive_avg_pool2d_backward", .decompose = adaptive_average_gradient<2>},
    {.name = "aten::_adaptive_avg_pool3d_backward", .decompose = adaptive_average_gradient<3>},
};

}  // namespace

std::span<const Meaning> adaptive_pool_meanings() { return kRows; }

}  // namespace smelt
