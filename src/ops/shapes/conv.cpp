// Convolutions. Sizes are arithmetic; the layout depends on which library computes it:
// channels-last if the input or the weight look so, contiguous otherwise, and a few cases in which
// the libraries disagree are refused.
#include <algorithm>

#include "ops/rules/geometry.h"
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"
#include "ops/shapes/norm_params.h"

namespace smelt {
namespace {

// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
// in the backward op the same arguments stand one place later, behind the gradient.
struct Convolution {
  TensorType input, weight;
  Sizes stride, padding, dilation, output_padding;
  bool transposed = false;
  int64_t groups = 1;

  int spatial() const { return weight.rank() - 2; }
};

// A list of one stands for all dimensions.
bool read_list(const ShapeQuery& q, size_t arg, int length, const Size& least, Sizes& out) {
  out = q.sizes(arg);
  if (out.size() == 1) out.assign(length, out[0]);
  if (static_cast<int>(out.size()) != length) return false;
  for (const Size& size : out) {
    if (less(q.symbols(), size, least)) return false;
  }
  return true;
}

Decision read(const ShapeQuery& q, size_t input, Convolution& conv) {
  SymbolTable& s = q.symbols();
  conv.input = q.tensor(input);
  conv.weight = q.tensor(input + 1);
  const int rank = conv.weight.rank();
  if (rank < 3 || rank > 5 || conv.input.rank() != rank)
    return Decision::forbid("input and weight differ in rank");
  const Kinds kinds = conv.input.device.is_cpu() ? kNumbers : kFloats;
  if (!takes(kinds, conv.input.dtype) || conv.weight.dtype != conv.input.dtype ||
      conv.weight.device != conv.input.device) {
    return Decision::forbid("no rule for these dtypes");
  }
  const size_t lists = input + 3;
  const bool lists_fit = read_list(q, lists, rank - 2, 1, conv.stride) &&
                         read_list(q, lists + 1, rank - 2, 0, conv.padding) &&
                         read_list(q, lists + 2, rank - 2, 1, conv.dilation) &&
                         read_list(q, lists + 4, rank - 2, 0, conv.output_padding);
  if (!lists_fit) return Decision::forbid("a parameter list does not fit");
  conv.transposed = q.boolean(lists + 3);
  conv.groups = q.integer(lists + 5);
  if (conv.groups < 1) return Decision::forbid("groups must be positive");
  if (is_empty(s, conv.input.sizes) || is_empty(s, conv.weight.sizes))
    return Decision::forbid("an empty operand");
  const Size channels = conv.transposed ? conv.weight.sizes[0] : conv.weight.sizes[1] * conv.groups;
  const bool divides = equal(s, modulo(conv.weight.sizes[0], conv.groups), 0);
  if (!divides || !equal(s, conv.input.sizes[1], channels))
    return Decision::forbid("the channels do not fit");
  return Decision::allow();
}

// The output's sizes; nothing where the kernel is larger than what it moves over.
std::optional<Sizes> output_sizes(SymbolTable& s, const Convolution& conv) {
  Sizes sizes = {conv.input.sizes[0],
                 conv.transposed ? conv.weight.sizes[1] * conv.groups : conv.weight.sizes[0]};
  for (int d = 0; d < conv.spatial(); ++d) {
    const Size& length = conv.input.sizes[d + 2];
    const Size reach = conv.dilation[d] * (conv.weight.sizes[d + 2] - 1);
    if (conv.transposed) {
      const bool pads_little = less(s, conv.output_padding[d], conv.stride[d]) ||
                               less(s, conv.output_padding[d], conv.dilation[d]);
      if (!pads_little) return std::nullopt;
      sizes.push_back((length - 1) * conv.stride[d] - conv.padding[d] * 2 + reach +
                      conv.output_padding[d] + 1);
      if (less(s, sizes.back(), 1)) return std::nullopt;
    } else {
      if (!conv.output_padding[d].is(0)) return std::nullopt;
      const Size room = length + conv.padding[d] * 2 - reach - 1;
      if (less(s, room, 0)) return std::nullopt;
      sizes.push_back(floor_div(room, conv.stride[d]) + 1);
    }
  }
  return sizes;
}

bool looks_channels_last(SymbolTable& s, const TensorType& type) {
  return suggested_format(s, type) != kContiguous;
}

// As the tensor is after .contiguous(format).
TensorType made_contiguous(SymbolTable& s, const TensorType& type, MemoryFormat format) {
  const bool already =
      format == kChannelsLast ? is_channels_last(s, type) : is_channels_last_3d(s, type);
  if (already) return type;
  return fresh(type.dtype, type.device, type.sizes, *format_strides(type.sizes, format));
}

// Will oneDNN compute it, whatever the number of threads and the processor?
bool surely_onednn(SymbolTable& s, const Convolution& conv) {
  if (conv.input.dtype != DType::f32) return false;
  const Size &batch = conv.input.sizes[0], &width = conv.weight.sizes.back();
  const Size height = conv.spatial() > 1 ? conv.weight.sizes[conv.weight.rank() - 2] : Size(1);
  bool spreads = !equal(s, height, 1) || !equal(s, width, 1) || !less(s, batch, 16);
  for (int d = 0; d < conv.spatial(); ++d) {
    spreads = spreads || !equal(s, conv.stride[d], 1) || !equal(s, conv.dilation[d], 1);
    if (conv.transposed && !less(s, conv.output_padding[d], conv.stride[d])) return false;
  }
  const Size part = product(std::span(conv.input.sizes).first(std::min(conv.input.rank(), 4)));
  const bool is_large = conv.groups > 1 || (less(s, 3, width) && less(s, 3, height)) ||
                        less(s, 1, batch) || less(s, 20480, part);
  return spreads && is_large;
}

bool fits_32_bits(SymbolTable& s, const TensorType& type) {
  return less(s, product(type.sizes), int64_t{1} << 31);
}

// The format of the outputs, for operands of rank 4 or 5.
Decision choose_format(SymbolTable& s, const Convolution& conv, const TensorType& input,
                       const TensorType& weight, MemoryFormat& format) {
  format = kContiguous;
  if (!looks_channels_last(s, input) && !looks_channels_last(s, weight)) return Decision::allow();
  const MemoryFormat wanted = weight.rank() == 4 ? kChannelsLast : kChannelsLast3d;
  if (input.dtype == DType::f64 || !takes(kFloats, input.dtype))
    return Decision::forbid("channels-last convolutions of this dtype differ by library");
  if (input.device.is_cpu()) {
    // The library looks at the operands again once they are contiguous, and may then see no
    // channels-last.
    const bool remains = looks_channels_last(s, made_contiguous(s, input, wanted)) ||
                         looks_channels_last(s, made_contiguous(s, weight, wanted));
    if (!remains) return Decision::forbid("the layout of the operands is ambiguous");
    if ((weight.rank() == 5 || conv.transposed) && !surely_onednn(s, conv)) {
      return Decision::forbid("another library may compute it");
    }
  } else if (conv.groups > 1 && equal(s, conv.input.sizes[1], conv.groups) &&
             !(fits_32_bits(s, input) && fits_32_bits(s, weight))) {
    return Decision::forbid("cuDNN or a kernel of torch may compute large depthwise convolutions");
  }
  format = wanted;
  return Decision::allow();
}

// One spatial dimension is computed as two, on a contiguous input.
struct Operands {
  TensorType input, weight;
  bool widened = false;
};

Operands widen(const Convolution& conv) {
  if (conv.weight.rank() != 3) return {conv.input, conv.weight, false};
  const TensorType input = fresh_like(conv.input, conv.input.sizes);
  return {*unsqueezed(input, 2), *unsqueezed(conv.weight, 2), true};
}

TensorType result_in(const Convolution& conv, Sizes sizes, MemoryFormat format, bool widened) {
  if (widened) sizes.insert(sizes.begin() + 2, Size(1));
  Sizes strides = *format_strides(sizes, format);
  TensorType type =
      fresh(conv.input.dtype, conv.input.device, std::move(sizes), std::move(strides));
  if (widened) {
    type.sizes.erase(type.sizes.begin() + 2);
    type.strides.erase(type.strides.begin() + 2);
  }
  return type;
}

Decision convolution(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  Convolution conv;
  if (Decision made = read(q, 0, conv); !made) return made;
  std::optional<Sizes> sizes = output_sizes(s, conv);
  if (!sizes) return Decision::forbid("the kernel is larger than the padded input");
  if (!q.is_none(2)) {
    const TensorType bias = q.tensor(2);
    if (bias.dtype != conv.input.dtype || bias.device != conv.input.device || bias.rank() != 1 ||
        !equal(s, bias.sizes[0], (*sizes)[1])) {
      return Decision::forbid("the bias does not fit");
    }
  }
  const Operands operands = widen(conv);
  MemoryFormat format;
  if (Decision made = choose_format(s, conv, operands.input, operands.weight, format); !made)
    return made;
  q.push(result_in(conv, std::move(*sizes), format, operands.widened));
  return Decision::allow();
}

// convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation,
// transposed, output_padding, groups, output_mask)
Decision convolution_backward(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  Convolution conv;
  if (Decision made = read(q, 1, conv); !made) return made;
  const TensorType grad = q.tensor(0);
  const std::optional<Sizes> sizes = output_sizes(s, conv);
  if (!sizes || grad.dtype != conv.input.dtype || !equal(s, grad.sizes, *sizes)) {
    return Decision::forbid("the gradient does not fit");
  }
  // oneDNN computes both gradients if it computes one.
  if (is_wanted(q, 10, 2) && !is_wanted(q, 10, 1))
    return Decision::forbid("the bias is wanted without the weight");
  const Operands operands = widen(conv);
  MemoryFormat format;
  if (Decision made = choose_format(s, conv, operands.input, operands.weight, format); !made)
    return made;
  // cuDNN asks the input and the gradient alone.
  const bool ambiguous = conv.input.device.is_cpu() && format != kContiguous &&
                         !looks_channels_last(s, operands.weight) &&
                         made_contiguous(s, operands.weight, format) == operands.weight;
  if (ambiguous && is_wanted(q, 10, 1))
    return Decision::forbid("the layout of the weight is ambiguous");
  for (size_t k = 0; k < 3; ++k) q.results.emplace_back();
  if (is_wanted(q, 10, 0))
    q.results[0] = result_in(conv, conv.input.sizes, format, operands.widened);
  if (is_wanted(q, 10, 1))
    q.results[1] = result_in(conv, conv.weight.sizes, format, operands.widened);
  if (is_wanted(q, 10, 2)) q.results[2] = fresh_like(grad, {grad.sizes[1]});
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::convolution", convolution},
    {"aten::convolution_backward", convolution_backward},
};

}  // namespace

std::span<const OpRow> conv_rows() { return kRows; }

}  // namespace smelt
