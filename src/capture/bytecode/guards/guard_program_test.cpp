// Guard programs over slots that are filled by hand, in an embedded Python.
#include "capture/bytecode/guards/guard_program.h"

#include <gtest/gtest.h>

#include "capture/bytecode/cpython/object.h"
#include "capture/bytecode/nodes/no_tensors_test.h"
#include "capture/bytecode/nodes/paths.h"

namespace smelt::bytecode {
namespace {

class GuardPrograms : public testing::Test {
 protected:
  static void SetUpTestSuite() { start_python_without_tensors(); }

  // A path from a slot or from another node, with the object that was found there.
  Ref add(NodeKind kind, Ref parent, int index, PyObject* object, uint16_t guards,
          PyObject* key = nullptr) {
    Node node;
    node.kind = kind;
    node.parent = parent;
    node.index = index;
    node.object = Object::share(object);
    node.key = Object::share(key);
    node.guards = guards;
    if (guards & kGuardLength) node.length = PyObject_Size(object);
    result.nodes.push_back(std::move(node));
    return static_cast<Ref>(result.nodes.size() - 1);
  }
  Ref slot(int index, PyObject* object, uint16_t guards) {
    result.slots_set.resize(static_cast<size_t>(index) + 1, 1);
    return add(NodeKind::slot, 0, index, object, guards);
  }

  static bool holds(GuardProgram& program, PyObject* object) {
    PyObject* slots[] = {object};
    std::vector<PyObject*> registers(program.wanted().size() + 1);
    const bool all_hold = program.check(slots, 1, registers.data());
    if (all_hold)
      for (size_t i = 0; i < program.wanted().size(); ++i) Py_DECREF(registers[i]);
    return all_hold;
  }
  static std::string why_not(const GuardProgram& program, PyObject* object) {
    PyObject* slots[] = {object};
    return program.explain(slots, 1);
  }

  GuardPrograms() { result.nodes.resize(1); }
  TraceResult result;
};

TEST_F(GuardPrograms, AtomsAreGuardedByValueAndType) {
  const Object seen = evaluate("2"), same = evaluate("1 + 1"), other = evaluate("3"),
               equal = evaluate("2.0");
  slot(0, seen.get(), kGuardType | kGuardEqual);
  GuardProgram program(result);
  EXPECT_TRUE(holds(program, same.get()));
  EXPECT_FALSE(holds(program, other.get()));
  EXPECT_FALSE(holds(program, equal.get()));
  EXPECT_EQ(why_not(program, same.get()), "");
  EXPECT_EQ(why_not(program, other.get()), "<slot 0>: was 2, is 3");
}

TEST_F(GuardPrograms, APathThroughAListIsWalkedAgain) {
  const Object list = evaluate("[1.5, 'x']");
  const Ref parent = slot(0, list.get(), kGuardType | kGuardLength);
  add(NodeKind::item, parent, 1, PyList_GET_ITEM(list.get(), 1), kGuardEqual);
  GuardProgram program(result);
  EXPECT_TRUE(holds(program, list.get()));
  EXPECT_TRUE(holds(program, evaluate("[7, 'x']").get()));
  EXPECT_FALSE(holds(program, evaluate("[7, 'y']").get()));
  EXPECT_FALSE(holds(program, evaluate("[7, 'x', 8]").get()));
  EXPECT_EQ(why_not(program, evaluate("[7, 'y']").get()), "<slot 0>[1]: was 'x', is 'y'");
}

TEST_F(GuardPrograms, TheSameObjectIsLookedAtAgainAfterAChange) {
  const Object dict = evaluate("{'a': 1, 'b': 2}");
  const Object key = evaluate("'a'");
  const Ref parent = slot(0, dict.get(), kGuardType);
  add(NodeKind::dict_item, parent, 0, PyDict_GetItem(dict.get(), key.get()), kGuardEqual,
      key.get());
  GuardProgram program(result);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(holds(program, dict.get()));  // tier 0 takes over
  PyDict_SetItemString(dict.get(), "b", Py_None);                        // not what was read
  EXPECT_TRUE(holds(program, dict.get()));
  PyDict_SetItemString(dict.get(), "a", Py_None);
  EXPECT_FALSE(holds(program, dict.get()));
  EXPECT_EQ(why_not(program, dict.get()), "<slot 0>['a']: was 1, is None");
}

TEST_F(GuardPrograms, AKeyThatWasNotThereStaysAway) {
  const Object dict = evaluate("{'a': 1}"), key = evaluate("'b'");
  const Ref parent = slot(0, dict.get(), kGuardType);
  result.absent.push_back({parent, key});
  GuardProgram program(result);
  EXPECT_TRUE(holds(program, dict.get()));
  PyDict_SetItem(dict.get(), key.get(), Py_None);
  EXPECT_FALSE(holds(program, dict.get()));
  EXPECT_EQ(why_not(program, dict.get()), "<slot 0>['b']: was not there, is there");
}

TEST_F(GuardPrograms, NumbersAreComputedAgain) {
  const Object seen = evaluate("4"), one = evaluate("1"), five = evaluate("5");
  const Ref n = slot(0, seen.get(), kGuardType);
  const Ref constant = add(NodeKind::constant, 0, 0, one.get(), 0);
  const Ref sum = add(NodeKind::scalar, n, 0 /* NB_ADD */, five.get(), kGuardEqual);
  result.nodes[sum].second = constant;
  GuardProgram program(result);
  EXPECT_TRUE(holds(program, seen.get()));
  EXPECT_FALSE(holds(program, five.get()));
  EXPECT_EQ(program.lines().back(), "(<slot 0> + 1): 5");
}

TEST_F(GuardPrograms, PathsReadAsAUserWritesThem) {
  const Object code = evaluate("(lambda self, x: x).__code__");
  const Object dict = evaluate("{'layers': [1, 2]}"), name = evaluate("'layers'");
  const Ref self = slot(0, dict.get(), 0);
  const Ref fields = add(NodeKind::instance_dict, self, 0, dict.get(), 0);
  const Ref layers = add(NodeKind::dict_item, fields, 0, dict.get(), 0, name.get());
  const Ref second = add(NodeKind::item, layers, 1, dict.get(), 0);
  EXPECT_EQ(path_text(result.nodes, second, code.get()), "self.layers[1]");
  EXPECT_EQ(paths_behind(result.nodes, second), std::vector<Ref>{second});
}

}  // namespace
}  // namespace smelt::bytecode
