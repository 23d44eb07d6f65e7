#include "ops/windows.h"

namespace smelt {

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
