#include "capture/bytecode/account/overlay.h"

namespace smelt::bytecode {

std::optional<Ref> Overlay::find(PyObject* key) const {
  if (!refs_) return std::nullopt;
  PyObject* found = PyDict_GetItemWithError(refs_.get(), key);
  PyErr_Clear();
  if (found == nullptr) return std::nullopt;
  return static_cast<Ref>(PyLong_AsLong(found));
}

std::optional<Ref> Overlay::find_item(Py_ssize_t index) const {
  if (!refs_) return std::nullopt;
  const Object key = Object::steal(PyLong_FromSsize_t(index));
  return find(key.get());
}

void Overlay::set(PyObject* key, Ref ref) {
  if (!refs_) refs_ = Object::steal(PyDict_New());
  const Object written = Object::steal(PyLong_FromLong(static_cast<long>(ref)));
  if (PyDict_SetItem(refs_.get(), key, written.get()) < 0) PyErr_Clear();
}

}  // namespace smelt::bytecode
