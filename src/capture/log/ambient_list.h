// The ambients that the ops of a log ran under, each once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "aten/op_ambient.h"

namespace smelt {

class AmbientList {
 public:
  // The place of what holds on this thread now.
  int32_t current();
  const std::vector<OpAmbient>& all() const { return all_; }

 private:
  uint32_t filling();

  std::vector<OpAmbient> all_;
  at::Tensor probe_, cast_probe_;  // tell one filling of autocast's cache from the next
  uint32_t filling_ = 0;
};

}  // namespace smelt
