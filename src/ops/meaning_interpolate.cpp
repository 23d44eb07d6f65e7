// Gradients of nearest-neighbour upsampling by whole factors. Not here: bilinear upsampling, of
// which ATen's kernel, with its tables of weights, is up to three times as fast as four loads per
// pixel.
#include <bit>

#include "ops/decompose.h"
#include "ops/meaning_families.h"

namespace smelt {
namespace {

// upsample_nearest*_backward(grad_output, output_size, input_size, scales..): an input pixel has
// the gradients of the pixels it was repeated to. With a power of two there is no rounding that
// would move one of them.
template <int spatial>
bool nearest_gradient(DecomposeQuery& q) {
  Sizes sizes(q.result().sizes.begin(), q.result().sizes.begin() + 2);
  Dims inside;
  for (int d = 2; d < spatial + 2; ++d) {
    const auto input = q.result().sizes[d].as_known(), output = q.type(0).sizes[d].as_known();
    if (!input || !output || *input < 1 || *output % *input != 0) return false;
    const int64_t factor = *output / *input;
    const double given = q.number(d + 1, 0);
    if (!std::has_single_bit(static_cast<uint64_t>(factor))) return false;
    if (given > 0 && given != static_cast<double>(factor)) return false;
    sizes.emplace_back(*input);
    inside.push_back(static_cast<int64_t>(sizes.size()));
    sizes.emplace_back(factor);
  }
  give(q, 0, sum(view(wide_argument(q, 0), sizes), inside, false));
  return true;
}

constexpr Meaning kRows[] = {
    {.name = "aten::upsample_nearest1d_backward", .decompose = nearest_gradient<1>},
    {.name = "aten::upsample_nearest2d_backward", .decompose = nearest_gradient<2>},
    {.name = "aten::upsample_nearest3d_backward", .decompose = nearest_gradient<3>},
};

}  // namespace

std::span<const Meaning> interpolate_meanings() { return kRows; }

}  // namespace smelt
