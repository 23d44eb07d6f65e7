#include "capture/bytecode/cpython/iterators.h"

#include "capture/bytecode/cpython/frame.h"
#include "capture/bytecode/cpython/private_api.h"

namespace smelt::bytecode {
namespace {

// As in listobject.c, tupleobject.c and dictobject.c; is_known_layout() makes sure.
struct SequenceIterator {
  PyObject_HEAD Py_ssize_t index;
  PyObject* sequence;
};
struct DictIterator {
  PyObject_HEAD PyObject* dict;
  Py_ssize_t used;
  Py_ssize_t position;
  PyObject* result;
  Py_ssize_t left;
};

const SequenceIterator& sequence_iterator(PyObject* object) {
  return *reinterpret_cast<const SequenceIterator*>(object);
}
const DictIterator& dict_iterator(PyObject* object) {
  return *reinterpret_cast<const DictIterator*>(object);
}

struct Types {
  PyTypeObject *list, *tuple;
  bool is_known;
};

bool is_known_layout() {
  const Object list = Object::steal(Py_BuildValue("[iii]", 1, 2, 3));
  const Object over_list = Object::steal(PyObject_GetIter(list.get()));
  const Object dict = Object::steal(Py_BuildValue("{iiii}", 1, 2, 3, 4));
  const Object over_dict = Object::steal(PyObject_GetIter(dict.get()));
  if (!over_list || !over_dict) return false;
  const Object first = Object::steal(PyIter_Next(over_list.get()));
  const Object key = Object::steal(PyIter_Next(over_dict.get()));
  const DictIterator& of_dict = dict_iterator(over_dict.get());
  return sequence_iterator(over_list.get()).index == 1 &&
         sequence_iterator(over_list.get()).sequence == list.get() && of_dict.dict == dict.get() &&
         of_dict.used == 2 && of_dict.position == 1 && of_dict.left == 1;
}

const Types& types() {
  static const Types found = [] {
    const Object list = Object::steal(PyList_New(0)), tuple = Object::steal(PyTuple_New(0));
    const Object over_list = Object::steal(PyObject_GetIter(list.get()));
    const Object over_tuple = Object::steal(PyObject_GetIter(tuple.get()));
    return Types{Py_TYPE(over_list.get()), Py_TYPE(over_tuple.get()), is_known_layout()};
  }();
  return found;
}

// (callable, arguments) or (callable, arguments, state): a recipe for an equal one, with what is
// inside of it shared.
Object reduced(PyObject* iterator) {
  static PyObject* const reduce = PyUnicode_InternFromString("__reduce__");
  Object recipe = Object::steal(PyObject_CallMethodNoArgs(iterator, reduce));
  if (recipe && PyTuple_CheckExact(recipe.get()) && PyTuple_GET_SIZE(recipe.get()) >= 2 &&
      PyTuple_CheckExact(PyTuple_GET_ITEM(recipe.get(), 1)))
    return recipe;
  PyErr_Clear();
  return {};
}

// The state that goes with the recipe's one argument; -1: there is none.
Py_ssize_t state_of(PyObject* recipe) {
  if (PyTuple_GET_SIZE(recipe) < 3) return -1;
  PyObject* state = PyTuple_GET_ITEM(recipe, 2);
  return PyLong_CheckExact(state) ? PyLong_AsSsize_t(state) : -1;
}

bool is_reversed(const PyTypeObject* type) {
  return type == &PyReversed_Type || type == &PyListRevIter_Type;
}

// Before 3.12 the range is the one that it was made of, and the state says how far it is.
std::optional<IteratorParts> parts_of_range(PyObject* iterator) {
  const Object recipe = reduced(iterator);
  if (!recipe) return std::nullopt;
  PyObject* arguments = PyTuple_GET_ITEM(recipe.get(), 1);
  if (PyTuple_GET_SIZE(arguments) != 1 || !PyRange_Check(PyTuple_GET_ITEM(arguments, 0)))
    return std::nullopt;
  const Py_ssize_t state = state_of(recipe.get());
  return IteratorParts{Object::share(PyTuple_GET_ITEM(arguments, 0)), state < 0 ? 0 : state, {}};
}

std::optional<IteratorParts> parts_of_reversed(PyObject* iterator) {
  const Object recipe = reduced(iterator);
  const Py_ssize_t next = recipe ? state_of(recipe.get()) : -1;
  if (next < 0) return std::nullopt;
  PyObject* over = PyTuple_GET_ITEM(PyTuple_GET_ITEM(recipe.get(), 1), 0);
  if (!PyList_CheckExact(over) && !PyTuple_CheckExact(over)) return std::nullopt;
  const Py_ssize_t given = Py_SIZE(over) - 1 - next;
  if (given < 0) return std::nullopt;
  return IteratorParts{Object::share(over), given, {}};
}

// The iterator knows how many are left, if the set has as many as when it was made.
std::optional<IteratorParts> parts_of_set(PyObject* iterator) {
  PyObject* over = nullptr;
  const auto visit = [](PyObject* found, void* to) {
    *static_cast<PyObject**>(to) = found;
    return 0;
  };
  Py_TYPE(iterator)->tp_traverse(iterator, visit, &over);
  const Py_ssize_t left = PyObject_LengthHint(iterator, -1);
  PyErr_Clear();
  if (over == nullptr || left <= 0 || !PyAnySet_CheckExact(over)) return std::nullopt;
  return IteratorParts{Object::share(over), PySet_GET_SIZE(over) - left, {}};
}

bool is_made_by_call(const PyTypeObject* type) {
  return type == &PyEnum_Type || type == &PyZip_Type || type == &PyMap_Type ||
         type == &PyFilter_Type;
}

std::optional<IteratorParts> parts_of_call(PyObject* iterator) {
  const Object recipe = reduced(iterator);
  if (!recipe || PyTuple_GET_SIZE(recipe.get()) != 2) return std::nullopt;  // zip(strict=True)
  PyObject* arguments = PyTuple_GET_ITEM(recipe.get(), 1);
  IteratorParts parts;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments); ++i)
    parts.arguments.push_back(Object::share(PyTuple_GET_ITEM(arguments, i)));
  return parts;
}

bool says(PyObject* object, const char* attribute) {
  const Object answer = Object::steal(PyObject_GetAttrString(object, attribute));
  PyErr_Clear();
  return !answer || answer.get() == Py_True;
}

// One that has not begun is its function, called with these arguments.
std::optional<IteratorParts> parts_of_generator(PyObject* generator) {
  const Object running = Object::steal(PyObject_GetAttrString(generator, "gi_frame"));
  PyErr_Clear();
  if (!running || running.get() == Py_None || says(generator, "gi_suspended") ||
      says(generator, "gi_running"))
    return std::nullopt;
  const Frame frame(
      reinterpret_cast<_PyInterpreterFrame*>(reinterpret_cast<PyGenObject*>(generator)->gi_iframe));
  const PyCodeObject* code = frame.code();
  if ((code->co_flags & (CO_VARARGS | CO_VARKEYWORDS)) != 0 || code->co_kwonlyargcount > 0)
    return std::nullopt;
  IteratorParts parts;
  parts.arguments.push_back(Object::share(reinterpret_cast<PyObject*>(frame.function())));
  for (int i = 0; i < code->co_argcount; ++i) {
    PyObject* argument = frame.slots()[i];
    if (argument == nullptr || PyCell_Check(argument)) return std::nullopt;
    parts.arguments.push_back(Object::share(argument));
  }
  return parts;
}

Object start(PyTypeObject* type, PyObject* container) {
  if (type == &PyRangeIter_Type || type == &PySetIter_Type)
    return Object::steal(PyObject_GetIter(container));
  if (is_reversed(type))
    return Object::steal(
        PyObject_CallOneArg(reinterpret_cast<PyObject*>(&PyReversed_Type), container));
  if (type == types().list) return Object::steal(PyList_Type.tp_iter(container));
  if (type == types().tuple) return Object::steal(PyTuple_Type.tp_iter(container));
  if (type == &PyDictIterKey_Type) return Object::steal(PyDict_Type.tp_iter(container));
  // dict's own method, whatever a subclass has.
  const char* name = type == &PyDictIterValue_Type ? "values" : "items";
  const Object method =
      Object::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyDict_Type), name));
  const Object view =
      Object::steal(method ? PyObject_CallOneArg(method.get(), container) : nullptr);
  return Object::steal(view ? PyObject_GetIter(view.get()) : nullptr);
}

}  // namespace

bool is_sequence_iterator(PyObject* iterator) {
  return Py_TYPE(iterator) == types().list || Py_TYPE(iterator) == types().tuple;
}

bool is_dict_iterator(PyObject* iterator) {
  const PyTypeObject* type = Py_TYPE(iterator);
  return types().is_known && (type == &PyDictIterKey_Type || type == &PyDictIterValue_Type ||
                              type == &PyDictIterItem_Type);
}

PyObject* iterated_by(PyObject* iterator) {
  if (!types().is_known) return nullptr;
  if (is_sequence_iterator(iterator)) return sequence_iterator(iterator).sequence;
  return is_dict_iterator(iterator) ? dict_iterator(iterator).dict : nullptr;
}

bool is_dict_view(PyObject* object) {
  return PyDictKeys_Check(object) || PyDictValues_Check(object) || PyDictItems_Check(object);
}

PyObject* gone_over(PyObject* object) {
  if (!is_dict_view(object)) return iterated_by(object);
  return reinterpret_cast<PyObject*>(reinterpret_cast<_PyDictViewObject*>(object)->dv_dict);
}

Py_ssize_t position_of(PyObject* iterator) {
  PyObject* over = iterated_by(iterator);
  if (over == nullptr) return -1;
  if (!is_dict_iterator(iterator)) return sequence_iterator(iterator).index;
  const DictIterator& state = dict_iterator(iterator);
  const Py_ssize_t given = state.used - state.left;
  // In a dict from which something was deleted, places and numbers of elements differ.
  return state.used == PyDict_GET_SIZE(over) && state.position == given ? given : -1;
}

std::optional<IteratorParts> parts_of(PyObject* iterator) {
  const PyTypeObject* type = Py_TYPE(iterator);
  if (type == &PyRangeIter_Type) return parts_of_range(iterator);
  if (type == &PySetIter_Type) return parts_of_set(iterator);
  if (is_reversed(type)) return parts_of_reversed(iterator);
  if (is_made_by_call(type)) return parts_of_call(iterator);
  if (type == &PyGen_Type) return parts_of_generator(iterator);
  const Py_ssize_t position = position_of(iterator);
  if (position < 0) return std::nullopt;
  return IteratorParts{Object::share(iterated_by(iterator)), position, {}};
}

Object left_of_range(PyObject* iterator) {
  if (Py_TYPE(iterator) != &PyRangeIter_Type) return {};
  const std::optional<IteratorParts> parts = parts_of_range(iterator);
  if (!parts) return {};
  const Object from = Object::steal(PyLong_FromSsize_t(parts->position));
  const Object rest = Object::steal(PySlice_New(from.get(), nullptr, nullptr));
  return Object::steal(PyObject_GetItem(parts->over.get(), rest.get()));
}

bool advance(PyObject* iterator, Py_ssize_t elements) {
  for (Py_ssize_t i = 0; i < elements; ++i) {
    const Object item = Object::steal(Py_TYPE(iterator)->tp_iternext(iterator));
    if (item) continue;
    if (!PyErr_Occurred()) return true;
    if (!PyErr_ExceptionMatches(PyExc_StopIteration)) return false;
    PyErr_Clear();
    return true;
  }
  return true;
}

Object make_iterator(PyTypeObject* type, PyObject* container, Py_ssize_t position) {
  Object made = start(type, container);
  if (!made || position == 0) return made;
  if (is_dict_iterator(made.get()) || Py_TYPE(made.get()) == &PySetIter_Type)
    return advance(made.get(), position) ? std::move(made) : Object();
  const Py_ssize_t state = is_reversed(type) ? Py_SIZE(container) - 1 - position : position;
  const Object moved = Object::steal(PyObject_CallMethod(made.get(), "__setstate__", "n", state));
  return moved ? std::move(made) : Object();
}

}  // namespace smelt::bytecode
