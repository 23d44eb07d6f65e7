// Graphs that write to inputs through schedule and lowering: which kernels store in place, in what
// order, and which are launched together. Kernels are named, not compiled.
#include "compile/in_place.h"

#include <gtest/gtest.h>

#include "compile/scheduled_test.h"
#include "passes/ir_test.h"

namespace smelt {
namespace {

TEST(InPlace, DoesWhatItsCasesSay) {
  expect_ir_cases(__FILE__, "in_place_test.ir", scheduled_and_lowered);
}

}  // namespace
}  // namespace smelt
