// The self-test of CPython's internals, and what it rests on, in an embedded Python.
#include "capture/bytecode/cpython/check_internals.h"

#include <Python.h>
#include <gtest/gtest.h>

#include "capture/bytecode/cpython/dict_lookup.h"
#include "capture/bytecode/cpython/known_types.h"

namespace smelt::bytecode {
namespace {

class Internals : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!Py_IsInitialized()) Py_InitializeEx(0);
  }
};

TEST_F(Internals, AreAsTheyShouldBe) {
  EXPECT_EQ(check_cpython(""), std::vector<std::string>{});
  EXPECT_EQ(PyErr_Occurred(), nullptr);
}

TEST_F(Internals, AMismatchOfEachKindIsNamed) {
  for (const char* kind : {"frames", "dicts", "type_versions", "iterators", "known_types"})
    EXPECT_EQ(check_cpython(kind).size(), 1u) << kind;
  EXPECT_EQ(PyErr_Occurred(), nullptr);
}

// A class of the user's may have any name.
TEST_F(Internals, TypesAreKnownAsObjects) {
  const Object re = Object::steal(PyImport_ImportModule("re"));
  const Object match = Object::steal(PyObject_CallMethod(re.get(), "match", "ss", "a", "a"));
  const Object alike = Object::steal(
      PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "re.Match"));
  const Object other = Object::steal(PyObject_CallNoArgs(alike.get()));
  EXPECT_TRUE(is_match(match.get()));
  EXPECT_FALSE(is_match(other.get()));
}

// An __eq__ of the user's is never called: such a key is neither found nor absent.
TEST_F(Internals, LookupsCallNobody) {
  const Object globals = Object::steal(PyDict_New());
  const Object made =
      Object::steal(PyRun_String("class Key:\n"
                                 "  def __hash__(self): return 1\n"
                                 "  def __eq__(self, other): raise SystemExit\n"
                                 "d = {Key(): 2, 'x': 3}\n",
                                 Py_file_input, globals.get(), globals.get()));
  ASSERT_TRUE(made);
  PyObject* dict = PyDict_GetItemString(globals.get(), "d");
  const Object one = Object::steal(PyLong_FromLong(1)),
               x = Object::steal(PyUnicode_FromString("x"));
  EXPECT_EQ(find_item(dict, one.get(), PyObject_Hash(one.get())), nullptr);
  EXPECT_FALSE(is_absent(dict, one.get(), PyObject_Hash(one.get())));
  EXPECT_EQ(PyLong_AsLong(find_item(dict, x.get(), PyObject_Hash(x.get()))), 3);
  EXPECT_EQ(PyErr_Occurred(), nullptr);
}

}  // namespace
}  // namespace smelt::bytecode
