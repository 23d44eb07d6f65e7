// Random kernels for tests: one back end against another. What they compute does not depend on
// rounding: a value that two back ends may round differently is never asked a question with a yes
// or no for an answer (compared, rounded to an integer), and never blown up. So results can be
// compared with a tolerance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "loops/kernel.h"

namespace smelt::loops {

struct RandomCase {
  Kernel kernel;
  std::vector<std::vector<std::byte>> buffers;  // what they hold before; none for scratch
  std::vector<uint64_t> params;
  // None from random_case: the values of size_params(kernel), and of the symbols themselves.
  std::vector<int64_t> sizes, symbols;
};

// Valid, over all ops, dtypes, reductions, stages and forms of indices. Some fail a check. The same
// for the same seed.
RandomCase random_case(uint64_t seed);
// The same with extents that are symbols.
RandomCase random_symbolic_case(uint64_t seed);

// Interprets the kernel on the case's buffers, which then hold the results. False: a check failed.
bool interpret(RandomCase& random_case);

// How the buffers differ by more than rounding: "b2[17]: 1.5 instead of 2.5", or nothing. Where a
// check failed buffers have no defined contents, so there is no point in asking.
std::string difference(const Kernel& kernel, const std::vector<std::vector<std::byte>>& expected,
                       const std::vector<std::vector<std::byte>>& actual);

}  // namespace smelt::loops
