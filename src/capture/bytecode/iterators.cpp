#include "capture/bytecode/iterators.h"

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

Object start(PyTypeObject* type, PyObject* container) {
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

Py_ssize_t position_of(PyObject* iterator) {
  PyObject* over = iterated_by(iterator);
  if (over == nullptr) return -1;
  if (!is_dict_iterator(iterator)) return sequence_iterator(iterator).index;
  const DictIterator& state = dict_iterator(iterator);
  const Py_ssize_t given = state.used - state.left;
  // In a dict from which something was deleted, places and numbers of elements differ.
  return state.used == PyDict_GET_SIZE(over) && state.position == given ? given : -1;
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
  if (is_dict_iterator(made.get()))
    return advance(made.get(), position) ? std::move(made) : Object();
  const Object moved =
      Object::steal(PyObject_CallMethod(made.get(), "__setstate__", "n", position));
  return moved ? std::move(made) : Object();
}

}  // namespace smelt::bytecode
