#include "passes/splitting/split_joint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "passes/ir_test.h"
#include "passes/passes.h"
#include "passes/splitting/narrow_saved.h"

namespace smelt {
namespace {

const PassInfo& pass(std::string_view name) {
  return *std::ranges::find(all_passes(), name, &PassInfo::name);
}

// As a training program does it, without the passes that the cases don't need. In the cases, the
// arguments that require gradients are the forward's, and it has one output.
TEST(SplitJoint, DoesWhatItsCasesSay) {
  expect_ir_cases(__FILE__, "split_joint_test.ir", [](const std::string& text) {
    Graph joint = Graph::parse(text);
    joint.verify();
    int32_t arguments = 0;
    for (const Input& input : joint.inputs) arguments += input.requires_grad;
    const JointParts parts{.arguments = arguments, .outputs = 1};
    const KeptTensors kept = kept_by_eager(joint, parts);
    Record record;
    run_pass(joint, pass("merge_equal"), {}, record);
    narrow_saved(joint);
    const SplitGraphs split = split_joint(joint, parts, kept);
    if (!split.possible) return "refused: " + split.possible.reason() + "\n";
    split.forward.verify();
    split.backward.verify();
    std::string saved = "saved:";
    for (const SavedValue& value : split.saved) {
      saved += value.from == SavedValue::From::input ? " input " : " output ";
      saved += std::to_string(value.index);
      for (int32_t output : value.shown_by) saved += " (shown by " + std::to_string(output) + ")";
    }
    saved += "; handed on:";
    for (int32_t argument : split.returned_argument) saved += " " + std::to_string(argument);
    return split.forward.str() + saved + "\n" + split.backward.str();
  });
}

}  // namespace
}  // namespace smelt
