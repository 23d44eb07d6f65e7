#include "capture/bytecode/cpython/known_types.h"

#include <string_view>

namespace smelt::bytecode {

Object own_dict(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  return Object::steal(PyType_GetDict(type));
#else
  return Object::share(type->tp_dict);
#endif
}

bool is_deque(PyObject* object) {
  static PyTypeObject* type = [] {
    Object module = Object::steal(PyImport_ImportModule("collections"));
    return reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(module.get(), "deque"));
  }();
  return Py_TYPE(object) == type;
}

bool is_match(PyObject* object) { return std::string_view(Py_TYPE(object)->tp_name) == "re.Match"; }

}  // namespace smelt::bytecode
