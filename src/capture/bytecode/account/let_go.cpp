#include "capture/bytecode/account/let_go.h"

#include "capture/bytecode/account/tracked.h"
#include "capture/bytecode/cpython/constants.h"
#include "capture/bytecode/nodes/tensors.h"

namespace smelt::bytecode {
namespace {

// Containers of more elements are not looked through for one that a method may take out.
constexpr Py_ssize_t kMostSearched = 1024;

// What a dict or list has there.
PyObject* item_at(PyObject* container, PyObject* key) {
  if (PyDict_Check(container)) {
    if (!is_constant(key) && !tensors().is_tensor(key)) return nullptr;  // runs no code
    PyObject* item = PyDict_GetItemWithError(container, key);
    if (item == nullptr) PyErr_Clear();
    return item;
  }
  if (!PyList_Check(container) || !PyLong_CheckExact(key)) return nullptr;
  Py_ssize_t index = PyLong_AsSsize_t(key);
  if (index == -1 && PyErr_Occurred() != nullptr) PyErr_Clear();
  if (index < 0) index += PyList_GET_SIZE(container);
  return index >= 0 && index < PyList_GET_SIZE(container) ? PyList_GET_ITEM(container, index)
                                                          : nullptr;
}

}  // namespace

void LetGo::note_contents(PyObject* object, int depth) {
  const traverseproc traverse = Py_TYPE(object)->tp_traverse;
  if (traverse == nullptr || depth > kDeepest || !PyObject_IS_GC(object)) return;
  struct Visit {
    LetGo* let_go;
    int depth;
  };
  const visitproc visit = [](PyObject* held, void* state) {
    const auto* known = static_cast<Visit*>(state);
    if (Py_REFCNT(held) == 1)
      known->let_go->note_contents(held, known->depth + 1);
    else
      known->let_go->note(held);
    return 0;
  };
  Visit start{this, depth};
  traverse(object, visit, &start);
}

void LetGo::note_replaced(StepKind kind, std::span<const Value> inputs) {
  PyObject* target = inputs[0].object;
  switch (kind) {
    case StepKind::set_item:
    case StepKind::del_item: note(item_at(target, inputs[1].object)); break;
    case StepKind::set_attr:
    case StepKind::del_attr:
      note_contents(target);
      if (PyObject** dict = _PyObject_GetDictPtr(target); dict != nullptr && *dict != nullptr)
        note(item_at(*dict, inputs[1].object));
      break;
    case StepKind::call:
      if (inputs.size() < 2 || inputs[1].object == nullptr) break;
      if (length_of(inputs[1].object) <= kMostSearched) note_contents(inputs[1].object);
      break;
    default: break;
  }
}

}  // namespace smelt::bytecode
