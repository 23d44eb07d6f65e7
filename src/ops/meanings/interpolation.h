// Where the pixels of a resized image come from, by the arithmetic of torch's kernels.
#pragma once

#include <array>

#include "ops/rules/op_meaning.h"

namespace smelt {

// One dimension of an image.
struct Axis {
  int64_t input, output;  // pixels
  double step;            // input pixels per output pixel, in the precision torch computes it in
  bool corners;           // the outermost pixels' centers are the ends, not their edges
};
// `factor`: the one the caller gave, 0 if none; `wide`: the dtype weights are computed in.
Axis axis_of(int64_t input, int64_t output, bool corners, double factor, DType wide);

// The place in the input of the output pixel `at`.
Expr source_of(ElementQuery& q, const Axis& axis, const Index& at, DType wide);

// The four pixels that cubic interpolation reads along a dimension, brought back to its ends.
struct CubicTap {
  Expr place;
  Expr weight;
};
std::array<CubicTap, 4> cubic_taps_of(ElementQuery& q, const Axis& axis, const Index& at,
                                      DType wide);

enum class Nearest : uint8_t { classic, exact };

// The input pixel of an output pixel, by single-precision arithmetic.
Expr nearest_pixel(ElementQuery& q, Nearest form, const Index& index, int64_t input, int64_t output,
                   double factor);
// The same for a pixel that is known.
int64_t nearest_pixel(Nearest form, int64_t index, int64_t input, int64_t output, double factor);

}  // namespace smelt
