// What a run comes to depend on, in an embedded Python: objects are read, used and owned by hand.
#include "capture/bytecode/trace/trace_uses.h"

#include <gtest/gtest.h>

#include <string>

#include "capture/bytecode/nodes/no_tensors_test.h"

namespace smelt::bytecode {
namespace {

// The account without tensors, numbers and steps.
class Account final : public TraceUses {
 public:
  Value slot(const Object& object) {
    return {object.get(), path(NodeKind::slot, 0, nullptr, slots_++, object.get())};
  }
  // All guards so far: what is asked of which node.
  std::string guards() const {
    static constexpr std::pair<uint16_t, const char*> kNames[] = {
        {kGuardPresent, "present"}, {kGuardType, "type"},     {kGuardSame, "same"},
        {kGuardEqual, "equal"},     {kGuardLength, "length"}, {kGuardTruth, "truth"},
        {kGuardKeys, "keys"},       {kGuardSet, "set"}};
    std::string text;
    for (const GuardEntry& entry : required_.guards) {
      text += text.empty() ? "" : "; ";
      text += std::to_string(entry.ref);
      for (const auto& [bit, name] : kNames)
        if (entry.bits & bit) text += std::string(" ") + name;
    }
    return text;
  }
  size_t aliases() const { return required_.aliases.size(); }

 private:
  int slots_ = 0;
};

class TraceUsesTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { start_python_without_tensors(); }

  Value item(Value list, Py_ssize_t index) {
    PyObject* object = PyList_GET_ITEM(list.object, index);
    return {object, account.read_item(list, index, object)};
  }

  Account account;
};

TEST_F(TraceUsesTest, what_lies_in_a_slot_is_not_asked_about_until_it_is_used) {
  const Object number = evaluate("12345");
  const Value value = account.slot(number);
  EXPECT_EQ(account.guards(), "");
  account.use(value);
  EXPECT_EQ(account.guards(), "1 equal");
  account.use(value);  // known already
  EXPECT_EQ(account.guards(), "1 equal");
}

TEST_F(TraceUsesTest, reading_says_where_an_object_was_found) {
  const Object list = evaluate("[12345, 'text']");
  const Value value = account.slot(list);
  const Value first = item(value, 0);
  EXPECT_EQ(account.guards(), "1 type length; 2 present");
  EXPECT_EQ(item(value, 0).ref, first.ref);
  account.use(first);
  EXPECT_EQ(account.guards(), "1 type length; 2 present; 2 equal");
}

TEST_F(TraceUsesTest, a_container_is_used_with_all_its_elements) {
  const Object list = evaluate("[[12345], str]");
  account.use(account.slot(list));
  EXPECT_EQ(
      account.guards(),
      "1 type; 1 type length; 2 present; 2 type; 2 type length; 3 present; 3 equal; 4 present; "
      "4 same");
}

TEST_F(TraceUsesTest, what_is_owned_can_be_read_freely) {
  const Object list = evaluate("[12345, 23456]");
  const Value value = account.slot(list);
  account.own(value);
  const std::string before = account.guards();
  EXPECT_EQ(item(value, 1).ref, 0);  // a constant from now on
  account.guard_length(value);
  EXPECT_EQ(account.guards(), before);
}

TEST_F(TraceUsesTest, truth_of_a_container_is_its_length) {
  const Object list = evaluate("[12345]");
  account.guard_truth(account.slot(list), true);
  EXPECT_EQ(account.guards(), "1 type truth");
}

TEST_F(TraceUsesTest, an_object_that_is_found_twice_is_one) {
  const Object list = evaluate("[[]] * 2");
  const Value value = account.slot(list);
  EXPECT_EQ(item(value, 0).ref, item(value, 1).ref);
  EXPECT_EQ(account.aliases(), 1);
}

TEST_F(TraceUsesTest, another_object_in_the_same_place_ends_the_trace) {
  const Object list = evaluate("[12345]");
  const Value value = account.slot(list);
  item(value, 0);
  PyList_SetItem(list.get(), 0, PyLong_FromLong(54321));
  item(value, 0);
  ASSERT_TRUE(account.stopped().has_value());
  EXPECT_EQ(account.stopped()->reason, BreakReason::mutation);
}

TEST_F(TraceUsesTest, what_nothing_is_known_of_ends_the_trace) {
  const Object unknown = evaluate("object()");
  account.use({unknown.get(), 0});
  ASSERT_TRUE(account.stopped().has_value());
  EXPECT_EQ(account.stopped()->reason, BreakReason::unknown_object);
}

}  // namespace
}  // namespace smelt::bytecode
