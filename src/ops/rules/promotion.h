// The dtype an op computes in, and which dtypes an op takes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/dtype.h"
#include "base/type.h"

namespace smelt {

// Sets of dtypes, as ops take them. The types torch computes with in few places only (float8,
// complex half, the wider unsigned integers) are in none.
using Kinds = uint8_t;
inline constexpr Kinds kBool = 1;
inline constexpr Kinds kInts = 2;    // u8, i8, i16, i32, i64
inline constexpr Kinds kHalves = 4;  // f16, bf16
inline constexpr Kinds kReals = 8;   // f32, f64
inline constexpr Kinds kComplexes = 16;
inline constexpr Kinds kFloats = kHalves | kReals;
inline constexpr Kinds kIntegral = kBool | kInts;
inline constexpr Kinds kNumbers = kInts | kFloats;
inline constexpr Kinds kNoComplex = kBool | kNumbers;
inline constexpr Kinds kDifferentiable = kFloats | kComplexes;
inline constexpr Kinds kAll = kNoComplex | kComplexes;

Kinds kind_of(DType dtype);
inline bool takes(Kinds kinds, DType dtype) { return (kinds & kind_of(dtype)) != 0; }

// torch.result_type: tensors with dimensions outrank 0-dim tensors, these outrank wrapped numbers;
// a lower rank counts only where its category is higher. Nothing where torch cannot promote. A
// Python float or complex number counts as the default of its category, which follows from
// `default_float`, what torch.get_default_dtype() gave (Graph::default_float).
std::optional<DType> result_type(std::span<const TensorType> operands, DType default_float);

// Integers and booleans become the default float.
DType floating_of(DType dtype, DType default_float);
// The dtype of complex numbers that goes with it.
DType default_complex(DType default_float);

}  // namespace smelt
