// The dtype, layout, device and pin_memory arguments that factories share.
#pragma once

#include "ops/rules/op_row.h"

namespace smelt {

// What a new tensor is made of; the caller sets the defaults.
struct Options {
  DType dtype = DType::f32;
  Device device;
};

// Reads the four arguments from `first` on. Forbids other layouts than strided and devices whose
// index is left open.
Decision read_options(const ShapeQuery& q, size_t first, Options& options);

}  // namespace smelt
