// Each check does something small with CPython's public functions and compares what smelt's own
// reading of the structures behind it says. All of them together take some ten microseconds.
#include "capture/bytecode/cpython/check_internals.h"

#include <Python.h>

#include <optional>

#include "capture/bytecode/cpython/dict_lookup.h"
#include "capture/bytecode/cpython/frame.h"
#include "capture/bytecode/cpython/iterators.h"
#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/cpython/object.h"
#include "capture/bytecode/cpython/private_api.h"

namespace smelt::bytecode {
namespace {

// -- frames: a function is called while an eval function of our own is in place.

struct Seen {
  PyObject *function = nullptr, *code = nullptr, *globals = nullptr, *argument = nullptr;
  int locals = -1, depth = -1, offset = -1;
  bool is_generator = true;
};
Seen seen;

PyObject* look_at_frame(PyThreadState* thread, _PyInterpreterFrame* raw, int throwing) {
  const Frame frame(raw);
  if (reinterpret_cast<PyObject*>(frame.function()) == seen.function) {
    seen.code = reinterpret_cast<PyObject*>(frame.code());
    seen.globals = frame.globals();
    seen.argument = frame.slots()[0];
    seen.locals = frame.locals();
    seen.depth = frame.depth();
    seen.offset = frame.next_offset();
    seen.is_generator = frame.is_generator();
  }
  return _PyEval_EvalFrameDefault(thread, raw, throwing);
}

bool has_known_frames(bool is_broken) {
  const Object globals = Object::steal(PyDict_New());
  if (!globals) return false;
  const Object made = Object::steal(PyRun_String("def probe(a, b=2):\n  c = a\n  return c\n",
                                                 Py_file_input, globals.get(), globals.get()));
  PyObject* function = made ? PyDict_GetItemString(globals.get(), "probe") : nullptr;
  const Object argument = Object::steal(PyFloat_FromDouble(0.5));
  if (function == nullptr || !argument) return false;
  PyThreadState* thread = PyThreadState_Get();
  const EvalFunction before = current_eval(thread);
  seen = {};
  seen.function = function;
  set_eval(thread, look_at_frame);
  const Object result = Object::steal(PyObject_CallOneArg(function, argument.get()));
  const bool was_in_place = current_eval(thread) == look_at_frame;
  set_eval(thread, before);
  PyObject* expected = is_broken ? globals.get() : argument.get();
  return was_in_place && result.get() == argument.get() && seen.argument == expected &&
         seen.code == PyFunction_GET_CODE(function) && seen.globals == globals.get() &&
         seen.locals == 3 && seen.depth == 0 && seen.offset == 0 && !seen.is_generator;
}

// -- dicts

bool has_known_dicts(bool is_broken) {
  const Object dict = Object::steal(Py_BuildValue("{s:i,i:i,(i):i}", "a", 1, 7, 2, 3, 3));
  const Object key = Object::steal(PyLong_FromLong(is_broken ? 8 : 7));
  const Object other = Object::steal(PyLong_FromLong(1000003));
  if (!dict || !key || !other) return false;
  PyObject* found = find_item(dict.get(), key.get(), PyObject_Hash(key.get()));
  if (found == nullptr || PyLong_AsLong(found) != 2) return false;
  if (!is_absent(dict.get(), other.get(), PyObject_Hash(other.get()))) return false;
#if PY_VERSION_HEX < 0x030D0000
  // Tier 0 of the guards: each change gives the dict a number of its own.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // 3.12 deprecates it, and has it
  const auto version = [&] { return reinterpret_cast<PyDictObject*>(dict.get())->ma_version_tag; };
#pragma GCC diagnostic pop
  const auto before = version();
  PyDict_GetItemWithError(dict.get(), key.get());
  if (version() != before) return false;
  if (PyDict_SetItem(dict.get(), key.get(), Py_None) < 0 || version() == before) return false;
#endif
  return true;
}

// -- types: a change of a class takes away its number.

bool has_known_types(bool is_broken) {
  const Object made = Object::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type),
                                                          "s(){s:i}", "probe", "x", 1));
  const Object name = Object::steal(PyUnicode_InternFromString("x"));
  if (!made || !name) return false;
  auto* type = reinterpret_cast<PyTypeObject*>(made.get());
  PyObject* found = _PyType_Lookup(type, name.get());
  const unsigned tag = type->tp_version_tag;
  if (found == nullptr || tag == 0) return false;
  if (!is_broken && PyObject_SetAttr(made.get(), name.get(), Py_None) < 0) return false;
  found = _PyType_Lookup(type, name.get());
  return found == Py_None && type->tp_version_tag != tag;
}

// -- iterators, and the entries of sets

bool has_known_iterators(bool is_broken) {
  const Object list = Object::steal(Py_BuildValue("[iii]", 1, 2, 3));
  const Object dict = Object::steal(Py_BuildValue("{iiii}", 1, 2, 3, 4));
  const Object set = Object::steal(PySet_New(list.get()));
  if (!list || !dict || !set) return false;
  for (PyObject* over : {list.get(), dict.get()}) {
    const Object iterator = Object::steal(PyObject_GetIter(over));
    if (!iterator) return false;
    const Object first = Object::steal(PyIter_Next(iterator.get()));
    if (iterated_by(iterator.get()) != over || position_of(iterator.get()) != (is_broken ? 2 : 1))
      return false;
  }
  Py_ssize_t at = 0, count = 0;
  PyObject* element;
  Py_hash_t hash;
  while (_PySet_NextEntry(set.get(), &at, &element, &hash)) ++count;
  return count == 3;
}

struct Check {
  const char* name;
  const char* what;
  bool (*holds)(bool is_broken);
};

constexpr Check kChecks[] = {
    {"frames", "frames and the eval function (frame.cpp)", has_known_frames},
    {"dicts", "the tables and versions of dicts (dict_lookup.cpp, guard_tier0.cpp)",
     has_known_dicts},
    {"type_versions", "the versions of classes (guard_tier0.cpp)", has_known_types},
    {"iterators", "iterators and sets (iterators.cpp)", has_known_iterators},
};

}  // namespace

std::vector<std::string> check_cpython(std::string_view broken) {
  const SavedError error;
  std::vector<std::string> problems;
  for (const Check& check : kChecks)
    if (!check.holds(broken == check.name))
      problems.push_back(std::string("CPython's ") + check.what);
  std::vector<const char*> missing = missing_types();
  if (broken == "known_types") missing.push_back("torch.NoSuchType");
  for (const char* name : missing) problems.push_back(std::string("the type ") + name);
  PyErr_Clear();
  return problems;
}

}  // namespace smelt::bytecode
