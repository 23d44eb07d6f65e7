// Numbers of a log's program as PyTorch has them, and as smelt has them (base/number.h).
#pragma once

#include <c10/core/Scalar.h>

#include "base/number.h"

namespace smelt {

inline Number to_number(const c10::Scalar& scalar) {
  if (scalar.isBoolean()) return scalar.toBool();
  if (scalar.isIntegral(false)) return scalar.toLong();
  return scalar.toDouble();
}

inline c10::Scalar to_scalar(const Number& number) {
  return std::visit([](auto value) { return c10::Scalar(value); }, number);
}

}  // namespace smelt
