// Interpolation to a given output size.
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

// A tensor of `sizes` in the format the strides of `like` suggest; contiguous with one spatial
// dimension.
TensorType formatted(SymbolTable& s, const TensorType& like, const Sizes& sizes) {
  return fresh(like.dtype, like.device, sizes, *format_strides(sizes, suggested_format(s, like)));
}

// The sizes of an output; nothing where one is not positive.
std::optional<Sizes> resized(SymbolTable& s, const Sizes& input, const Sizes& output,
                             size_t spatial) {
  if (input.size() != spatial + 2 || output.size() != spatial || is_empty(s, input))
    return std::nullopt;
  Sizes sizes(input.begin(), input.begin() + 2);
  for (const Size& size : output) {
    if (less(s, size, 1)) return std::nullopt;
    sizes.push_back(size);
  }
  return sizes;
}

// upsample_*(self, output_size, ...)
template <size_t spatial>
Decision upsample(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const std::optional<Sizes> sizes = resized(q.symbols(), self.sizes, q.sizes(1), spatial);
  if (!sizes || !takes(kFloats, self.dtype))
    return Decision::forbid("no rule for these sizes or dtypes");
  q.push(formatted(q.symbols(), self, *sizes));
  return Decision::allow();
}

// Not every gradient keeps the format.
enum class Gradient : uint8_t { formatted, contiguous };

// upsample_*_backward(grad_output, output_size, input_size, ...)
template <size_t spatial, Gradient layout = Gradient::formatted>
Decision upsample_backward(ShapeQuery& q) {
  const TensorType grad = q.tensor(0);
  const Sizes input = q.sizes(2);
  const std::optional<Sizes> sizes = resized(q.symbols(), input, q.sizes(1), spatial);
  if (!sizes || !takes(kFloats, grad.dtype) || !equal(q.symbols(), grad.sizes, *sizes)) {
    return Decision::forbid("the gradient does not fit");
  }
  q.push(layout == Gradient::contiguous ? fresh_like(grad, input)
                                        : formatted(q.symbols(), grad, input));
  return Decision::allow();
}

constexpr Gradient kPlain = Gradient::contiguous;

constexpr OpRow kRows[] = {
    {"aten::_upsample_bicubic2d_aa", upsample<2>},
    {"aten::_upsample_bicubic2d_aa_backward", upsample_backward<2, kPlain>},
    {"aten::_upsample_bilinear2d_aa", upsample<2>},
    {"aten::_upsample_bilinear2d_aa_backward", upsample_backward<2>},
    {"aten::_upsample_nearest_exact1d", upsample<1>},
    {"aten::_upsample_nearest_exact1d_backward", upsample_backward<1>},
    {"aten::_upsample_nearest_exact2d", upsample<2>},
    {"aten::_upsample_nearest_exact2d_backward", upsample_backward<2>},
    {"aten::_upsample_nearest_exact3d", upsample<3>},
    {"aten::_upsample_nearest_exact3d_backward", upsample_backward<3, kPlain>},
    {"aten::upsample_bicubic2d", upsample<2>},
    {"aten::upsample_bicubic2d_backward", upsample_backward<2, kPlain>},
    {"aten::upsample_bilinear2d", upsample<2>},
    {"aten::upsample_bilinear2d_backward", upsample_backward<2>},
    {"aten::upsample_linear1d", upsample<1>},
    {"aten::upsample_linear1d_backward", upsample_backward<1>},
    {"aten::upsample_nearest1d", upsample<1>},
    {"aten::upsample_nearest1d_backward", upsample_backward<1>},
    {"aten::upsample_nearest2d", upsample<2>},
    {"aten::upsample_nearest2d_backward", upsample_backward<2>},
    {"aten::upsample_nearest3d", upsample<3>},
    {"aten::upsample_nearest3d_backward", upsample_backward<3, kPlain>},
    {"aten::upsample_trilinear3d", upsample<3>},
    {"aten::upsample_trilinear3d_backward", upsample_backward<3>},
};

}  // namespace

std::span<const OpRow> upsample_rows() { return kRows; }

}  // namespace smelt
