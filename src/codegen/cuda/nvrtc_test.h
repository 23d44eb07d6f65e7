// For tests: NVRTC as the developers' environment has it.
#pragma once

#include "base/error.h"

namespace smelt::cuda {

// Looks for it beside torch, which tests of this folder do not load.
Decision has_nvrtc_for_tests();

}  // namespace smelt::cuda

#define SMELT_NEEDS_NVRTC()                                                      \
  if (const Decision decision = smelt::cuda::has_nvrtc_for_tests(); !decision) { \
    GTEST_SKIP() << decision.reason();                                           \
  }
