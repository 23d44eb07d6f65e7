// Graphs through schedule and lowering: which results have places in the arena, and where. Kernels
// are named, not compiled.
#include "compile/arena.h"

#include <gtest/gtest.h>

#include "compile/scheduled_test.h"
#include "passes/ir_test.h"

namespace smelt {
namespace {

TEST(PlaceInArena, DoesWhatItsCasesSay) {
  expect_ir_cases(__FILE__, "arena_test.ir", scheduled_and_lowered);
}

}  // namespace
}  // namespace smelt
