#include "base/dtype.h"

#include <array>
#include <utility>

namespace smelt {
namespace {

struct DTypeRow {
  std::string_view name;
  int bytes;
  Category category;
};

constexpr auto kRows = std::to_array<DTypeRow>({
#define SMELT_DTYPE(name, bytes, category) {#name, bytes, Category::category},
#include "base/dtype.def"
#undef SMELT_DTYPE
});

const DTypeRow& row_of(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }

bool is_float8(DType dtype) { return is_floating(dtype) && bytes_of(dtype) == 1; }

// torch added these late and gave them no promotion among integers.
bool is_wide_unsigned(DType dtype) {
  return dtype == DType::u16 || dtype == DType::u32 || dtype == DType::u64;
}

DType wider(DType a, DType b) { return bytes_of(a) >= bytes_of(b) ? a : b; }

// Both of one category, different.
DType promote_alike(DType a, DType b) {
  // No type of that width holds both ranges: u8 with i8, f16 with bf16.
  if (bytes_of(a) == bytes_of(b)) return is_integral(a) ? DType::i16 : DType::f32;
  return wider(a, b);
}

}  // namespace

std::string_view name_of(DType dtype) { return row_of(dtype).name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int bytes_of(DType dtype) { return row_of(dtype).bytes; }

Category category_of(DType dtype) { return row_of(dtype).category; }

std::optional<DType> promote(DType a, DType b) {
  if (a == b) return a;
  if (is_float8(a) || is_float8(b)) return std::nullopt;
  if (category_of(a) > category_of(b)) std::swap(a, b);
  if (is_wide_unsigned(a) || is_wide_unsigned(b)) {
    if (!is_floating(b)) return std::nullopt;
    return b;
  }
  if (category_of(a) == category_of(b)) return promote_alike(a, b);
  // The precision of a float is kept beside a complex number; everything else gives way.
  if (is_floating(a)) return wider(*complex_of(a), b);
  return b;
}

DType real_of(DType dtype) {
  switch (dtype) {
    case DType::c32: return DType::f16;
    case DType::c64: return DType::f32;
    case DType::c128: return DType::f64;
    default: return dtype;
  }
}

std::optional<DType> complex_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return DType::c32;
    case DType::bf16:
    case DType::f32: return DType::c64;
    case DType::f64: return DType::c128;
    default: break;
  }
  if (is_complex(dtype)) return dtype;
  return std::nullopt;
}

DType accumulate_of(DType dtype) {
  if (is_floating(dtype) && bytes_of(dtype) < 4) return DType::f32;
  return dtype == DType::c32 ? DType::c64 : dtype;
}

}  // namespace smelt
