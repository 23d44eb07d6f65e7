// Images as columns of their windows, and columns added up to an image.
#include "ops/meanings/families.h"
#include "ops/meanings/windows.h"
#include "ops/rules/element.h"

namespace smelt {
namespace {

// More are a loop in PyTorch's kernel, and should be one.
constexpr int64_t kMostColumns = 32;

// (.., kernel_size, dilation, padding, stride), the first at argument `first`: over an image of
// these sizes.
Windows windows_of(const NodeReader& q, size_t first, std::span<const Size> image) {
  Windows windows;
  const auto at = [&](size_t arg, size_t d) {
    const std::vector<int64_t> list = q.integers(first + arg);
    return list.size() == 1 ? list[0] : list[d];
  };
  for (size_t d = 0; d < 2; ++d) {
    Window w{.kernel = at(0, d), .stride = at(3, d), .pad = at(2, d), .dilation = at(1, d)};
    w.input = image[d].known();
    w.output = (w.input + 2 * w.pad - w.dilation * (w.kernel - 1) - 1) / w.stride + 1;
    windows.push_back(w);
  }
  return windows;
}

// im2col(self, ..): [.., channel and place in the window, window]
Expr im2col(ElementQuery& q) {
  const TensorType& self = q.type(0);
  const size_t lead = self.sizes.size() - 3;
  const Windows windows = windows_of(q, 1, std::span(self.sizes).last(2));
  const Sizes inner{self.sizes[lead], windows[0].kernel, windows[1].kernel};
  const Sizes outer{windows[0].output, windows[1].output};
  const Indices column = loops::unravel(q.at()[lead], inner, q.extents());
  const Indices number = loops::unravel(q.at()[lead + 1], outer, q.extents());
  Indices place(q.at().begin(), q.at().begin() + static_cast<ptrdiff_t>(lead));
  place.push_back(column[0]);
  Condition inside;
  for (size_t d = 0; d < 2; ++d) {
    const Window& w = windows[d];
    const Index index =
        number[d] * Size(w.stride) + column[d + 1] * Size(w.dilation) - Index(Size(w.pad));
    if (w.leaves()) {
      inside.add(is_at_least(q, index, 0));
      inside.add(is_below(q, index, w.input));
    }
    place.push_back(clamped_index(q, index, w.input));
  }
  const Expr element = q.load(q.value(0), place).to(accumulate_of(self.dtype));
  return inside.all.builder ? select(inside.all, element, 0.0) : element;
}

// How many windows may have one pixel, along a dimension.
std::vector<int64_t> covers_of(const Windows& windows) {
  std::vector<int64_t> covers;
  for (const Window& w : windows)
    covers.push_back(w.stride == 1 ? w.kernel : (w.kernel + w.stride - 1) / w.stride);
  return covers;
}

// Where a pixel stands in the window that begins `back` before it: windows go back one by one, as
// torch adds them up by ascending places in the window.
struct Cover {
  Index window, inner;
};
Cover cover_of(const Index& from, const Window& w, int64_t back, const loops::Extents& extents) {
  if (w.stride == 1) return {from - Index(Size(back * w.dilation)), Index(Size(back))};
  return {quotient(from, w.stride, extents) - Index(Size(back)),
          remainder(from, w.stride, extents) + Index(Size(back * w.stride))};
}

// col2im(self, output_size, ..)
Expr col2im(ElementQuery& q) {
  const size_t lead = q.at().size() - 3;
  const Windows windows = windows_of(q, 2, std::span(q.result().sizes).last(2));
  const DType wide = accumulate_of(q.result().dtype);
  Expr total;
  each_offset(covers_of(windows), [&](const std::vector<int64_t>& back) {
    Condition inside;
    Index column = q.at()[lead], number = 0;
    for (size_t d = 0; d < 2; ++d) {
      const Window& w = windows[d];
      const Index from = q.at()[lead + 1 + d] + Index(Size(w.pad));
      const Cover cover = cover_of(from, w, back[d], q.extents());
      const int64_t most = (w.input - 1 + w.pad) / w.stride;
      const int64_t less = w.stride == 1 ? back[d] * w.dilation : back[d];
      if (less > w.pad / w.stride) inside.add(is_at_least(q, cover.window, 0));
      if (most - less >= w.output) inside.add(is_below(q, cover.window, w.output));
      const bool ends = w.stride > 1 && (back[d] + 1) * w.stride > w.kernel;
      if (ends) inside.add(is_below(q, cover.inner, w.kernel));
      const Index inner = ends ? clamped_index(q, cover.inner, w.kernel) : cover.inner;
      column = column * Size(w.kernel) + inner;
      number = number * Size(w.output) + clamped_index(q, cover.window, w.output);
    }
    Indices place(q.at().begin(), q.at().begin() + static_cast<ptrdiff_t>(lead));
    place.push_back(column);
    place.push_back(number);
    Expr element = q.load(q.value(0), place).to(wide);
    if (inside.all.builder) element = select(inside.all, element, 0.0);
    total = total.builder ? total + element : element;
  });
  return total;
}

// Their pixels would be gathered one by one.
bool is_narrow(const NodeReader& q) { return loops::is_half(q.result().dtype); }

bool are_known(std::span<const Size> sizes) {
  for (const Size& size : sizes)
    if (!size.is_known() || size.known() < 1) return false;
  return true;
}

Decision allows_im2col(const NodeReader& q) {
  if (is_narrow(q)) return Decision::forbid("pixels of two bytes");
  const TensorType& self = q.type(0);
  if (!are_known(std::span(self.sizes).last(3)) || !all_certainly_positive(self.sizes))
    return Decision::forbid("the sizes of the image are not known");
  return Decision::allow();
}

Decision allows_col2im(const NodeReader& q) {
  if (is_narrow(q)) return Decision::forbid("pixels of two bytes");
  if (!are_known(std::span(q.result().sizes).last(3)) || !all_certainly_positive(q.type(0).sizes))
    return Decision::forbid("the sizes of the image are not known");
  if (!is_floating(q.result().dtype)) return Decision::forbid("sums of truths");
  const Windows windows = windows_of(q, 2, std::span(q.result().sizes).last(2));
  int64_t all = 1;
  for (const int64_t covers : covers_of(windows)) all *= covers;
  if (all > kMostColumns) return Decision::forbid("a large window");
  for (const Window& w : windows)
    if (w.stride > 1 && w.dilation > 1) return Decision::forbid("windows with gaps");
  return Decision::allow();
}

constexpr Meaning kRows[] = {
    elsewhere(Pattern::gather, "aten::col2im", col2im, allows_col2im, kCompound),
    elsewhere(Pattern::gather, "aten::im2col", im2col, allows_im2col, kCompound),
};

}  // namespace

std::span<const Meaning> unfold_meanings() { return kRows; }

}  // namespace smelt
