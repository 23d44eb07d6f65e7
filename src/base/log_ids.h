// The numbers by which a log of ops names tensors and numbers, for the folders below the log as well.
#pragma once

#include <cstdint>

namespace smelt {

using LogValue = int32_t;   // a tensor of the log; -1: none
using ScalarId = uint32_t;  // a number that ops take, and that may be another one in each call

}  // namespace smelt
