// Element types: their names, sizes and promotion.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace smelt {

enum class DType : uint8_t {
#define SMELT_DTYPE(name, bytes, category) name,
#include "base/dtype.def"
#undef SMELT_DTYPE
};

enum class Category : uint8_t { boolean, integral, floating, complex };

// The printed name, "f32" for instance.
std::string_view name_of(DType dtype);
// The dtype of that name, or nothing.
std::optional<DType> parse_dtype(std::string_view name);

int bytes_of(DType dtype);
Category category_of(DType dtype);
inline bool is_floating(DType d) { return category_of(d) == Category::floating; }
inline bool is_complex(DType d) { return category_of(d) == Category::complex; }
inline bool is_integral(DType d) { return category_of(d) == Category::integral; }

// The dtype both operands are computed in, as torch.promote_types. Nothing where torch refuses
// (the float8 types and the wider unsigned integers with others).
std::optional<DType> promote(DType a, DType b);

// c64 -> f32 and so on; other dtypes stay.
DType real_of(DType dtype);
// f32 -> c64 and so on; integral and boolean give nothing.
std::optional<DType> complex_of(DType dtype);
// The type sums and other accumulations of a half-precision type are kept in: f16, bf16 -> f32.
DType accumulate_of(DType dtype);

}  // namespace smelt
