// How a log of ops names tensors and numbers, for the folders below the log as well.
#pragma once

#include <cstdint>

namespace smelt {

using LogValue = int32_t;   // a tensor of the log; -1: none
using ScalarId = uint32_t;  // a number that ops take, and that may be another one in each call

// An argument of an op, or an element of one, that is a number of which each run has its own.
struct TakenNumber {
  uint32_t argument = 0;
  int32_t element = -1;    // of a list; -1: it is the argument
  bool is_tensor = false;  // as a 0-dim tensor that counts as a number
  ScalarId id = 0;

  friend bool operator==(const TakenNumber&, const TakenNumber&) = default;
};

}  // namespace smelt
