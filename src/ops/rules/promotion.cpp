#include "ops/rules/promotion.h"

#include <array>

namespace smelt {
namespace {

using Maybe = std::optional<DType>;

bool is_float8(DType dtype) { return is_floating(dtype) && bytes_of(dtype) == 1; }
bool is_wide_unsigned(DType dtype) {
  return dtype == DType::u16 || dtype == DType::u32 || dtype == DType::u64;
}

// torch: combine_categories. The lower rank counts only with its category.
Maybe combine(Maybe higher, Maybe lower) {
  if (!higher) return lower;
  if (!lower || is_complex(*higher)) return higher;
  if (is_complex(*lower)) return is_floating(*higher) ? complex_of(*higher) : lower;
  if (is_floating(*higher)) return higher;
  if (*higher == DType::b8 || is_floating(*lower)) return promote(*higher, *lower);
  return higher;
}

}  // namespace

Kinds kind_of(DType dtype) {
  if (is_float8(dtype) || is_wide_unsigned(dtype) || dtype == DType::c32) return 0;
  switch (category_of(dtype)) {
    case Category::boolean: return kBool;
    case Category::integral: return kInts;
    case Category::floating: return bytes_of(dtype) == 2 ? kHalves : kReals;
    case Category::complex: return kComplexes;
  }
  return 0;
}

std::optional<DType> result_type(std::span<const TensorType> operands, DType default_float) {
  std::array<Maybe, 3> ranks;  // with dimensions, 0-dim, wrapped
  for (const TensorType& operand : operands) {
    DType dtype = operand.dtype;
    if (operand.wrapped_number && is_complex(dtype)) dtype = default_complex(default_float);
    if (operand.wrapped_number && is_floating(dtype)) dtype = default_float;
    Maybe& rank = ranks[operand.rank() > 0 ? 0 : operand.wrapped_number ? 2 : 1];
    rank = rank ? promote(*rank, dtype) : dtype;
    if (!rank) return std::nullopt;
  }
  // Each call finds at least one operand, so nothing here means that torch refuses.
  if (!ranks[1]) return combine(ranks[0], ranks[2]);
  const Maybe lower = combine(ranks[1], ranks[2]);
  if (!lower) return std::nullopt;
  return combine(ranks[0], lower);
}

DType floating_of(DType dtype, DType default_float) {
  const Category category = category_of(dtype);
  return category == Category::floating || category == Category::complex ? dtype : default_float;
}

DType default_complex(DType default_float) {
  if (default_float == DType::f16) return DType::c32;
  return default_float == DType::f64 ? DType::c128 : DType::c64;
}

}  // namespace smelt
