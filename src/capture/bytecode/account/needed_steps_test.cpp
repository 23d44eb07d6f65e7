// Steps over nodes that are written by hand: which of them a cached call does.
#include "capture/bytecode/account/needed_steps.h"

#include <gtest/gtest.h>

namespace smelt::bytecode {
namespace {

class NeededSteps : public testing::Test {
 protected:
  NeededSteps() : nodes(1) {}

  Ref outside() {
    Node node;
    node.kind = NodeKind::slot;
    nodes.push_back(std::move(node));
    return static_cast<Ref>(nodes.size() - 1);
  }
  Ref make(StepKind kind, std::vector<Ref> inputs) {
    Node node;
    node.kind = NodeKind::result;
    node.index = static_cast<int32_t>(steps.size());
    nodes.push_back(std::move(node));
    const auto ref = static_cast<Ref>(nodes.size() - 1);
    add(kind, inputs, ref, false);
    return ref;
  }
  void change(StepKind kind, std::vector<Ref> inputs) { add(kind, inputs, 0, true); }

  // The numbers of the steps that are needed where `value` is returned.
  std::vector<size_t> needed_for(Ref value) const {
    Exit exit;
    exit.returns = true;
    exit.value.ref = value;
    const std::vector<bool> needed = needed_steps(nodes, steps, exit);
    std::vector<size_t> numbers;
    for (size_t i = 0; i < needed.size(); ++i)
      if (needed[i]) numbers.push_back(i);
    return numbers;
  }

  std::vector<Node> nodes;
  std::vector<Step> steps;

 private:
  void add(StepKind kind, const std::vector<Ref>& inputs, Ref result, bool effect) {
    Step step{};
    step.kind = kind;
    step.result = result;
    step.effect = effect;
    for (const Ref ref : inputs) step.inputs.push_back({ref, {}});
    steps.push_back(std::move(step));
  }
};

using Numbers = std::vector<size_t>;

TEST_F(NeededSteps, an_object_that_nobody_gets_is_not_made) {
  const Ref slot = outside();
  make(StepKind::build_tuple, {slot});
  const Ref list = make(StepKind::build_list, {slot});
  EXPECT_EQ(needed_for(list), Numbers({1}));
  EXPECT_EQ(needed_for(slot), Numbers());
}

TEST_F(NeededSteps, what_is_in_an_object_is_made_with_it) {
  const Ref inner = make(StepKind::build_list, {});
  const Ref outer = make(StepKind::build_tuple, {inner});
  EXPECT_EQ(needed_for(outer), Numbers({0, 1}));
  EXPECT_EQ(needed_for(inner), Numbers({0}));
}

TEST_F(NeededSteps, changes_of_an_object_go_with_the_object) {
  const Ref list = make(StepKind::build_list, {});
  change(StepKind::list_append, {list, outside()});
  change(StepKind::list_append, {list, make(StepKind::build_tuple, {})});
  EXPECT_EQ(needed_for(list), Numbers({0, 1, 2, 3}));
  EXPECT_EQ(needed_for(outside()), Numbers());
}

TEST_F(NeededSteps, changes_of_what_was_there_before_are_always_done) {
  const Ref value = make(StepKind::build_tuple, {});
  change(StepKind::set_item, {outside(), outside(), value});
  EXPECT_EQ(needed_for(0), Numbers({0, 1}));
}

// What is stored in an object's __dict__ is stored in the object.
TEST_F(NeededSteps, a_dict_of_an_object_is_the_object) {
  const Ref object = make(StepKind::call, {outside()});
  const Ref dict = make(StepKind::instance_dict, {object});
  change(StepKind::set_item, {dict, outside(), outside()});
  EXPECT_EQ(needed_for(object), Numbers({0, 1, 2}));
}

}  // namespace
}  // namespace smelt::bytecode
