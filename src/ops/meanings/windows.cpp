#include "ops/meanings/windows.h"

#include <algorithm>

namespace smelt {
namespace {

// A larger window is a loop in PyTorch's kernel, and should be one.
constexpr int64_t kMostOffsets = 32;

}  // namespace

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

std::optional<Windows> even_windows(const TensorType& input, const TensorType& output,
                                    int spatial) {
  Windows windows;
  for (int d = 0; d < spatial; ++d) {
    const auto from = input.sizes[input.rank() - spatial + d].as_known();
    const auto to = output.sizes[output.rank() - spatial + d].as_known();
    if (!from || !to || *to < 1 || *from % *to != 0) return std::nullopt;
    const int64_t length = *from / *to;
    windows.push_back({.kernel = length, .stride = length, .input = *from, .output = *to});
  }
  return windows;
}

Decision allows_windows(const std::optional<Windows>& windows) {
  if (!windows) return Decision::forbid("the sizes of the image are not known");
  if (offsets_in(*windows) > kMostOffsets) return Decision::forbid("a large window");
  return Decision::allow();
}

bool lie_side_by_side(const std::optional<Windows>& windows) {
  return windows && std::ranges::all_of(*windows, &Window::lies_side_by_side);
}

std::vector<int64_t> kernels_of(const Windows& windows) {
  std::vector<int64_t> kernels;
  for (const Window& window : windows) kernels.push_back(window.kernel);
  return kernels;
}

Index offset_index(const Index& at, const Window& window, int64_t offset) {
  return at * Size(window.stride) + Index(Size(offset * window.dilation - window.pad));
}

int64_t offsets_in(const Windows& windows) {
  int64_t count = 1;
  for (const Window& window : windows) count *= window.kernel;
  return count;
}

void each_offset(const std::vector<int64_t>& limits,
                 const std::function<void(const std::vector<int64_t>&)>& visit) {
  std::vector<int64_t> offset(limits.size(), 0);
  for (;;) {
    visit(offset);
    size_t d = limits.size();
    while (d > 0 && ++offset[d - 1] == limits[d - 1]) offset[--d] = 0;
    if (d == 0) return;
  }
}

Term window_view(Term input, const Windows& windows, Dims& inside) {
  const size_t lead = input.type().sizes.size() - windows.size();
  Sizes sizes(input.type().sizes.begin(), input.type().sizes.begin() + lead);
  for (const Window& w : windows) {
    sizes.emplace_back(w.output);
    inside.push_back(static_cast<int64_t>(sizes.size()));
    sizes.emplace_back(w.kernel);
  }
  return view(input, sizes);
}

bool average_side_by_side(DecomposeQuery& q, const Windows& windows, int64_t divisor) {
  Dims inside;
  const Term viewed = window_view(wide_argument(q, 0), windows, inside);
  give(q, 0, sum(viewed, inside, false) / static_cast<double>(divisor));
  return true;
}

}  // namespace smelt
