#include "capture/bytecode/cpython/known_types.h"

#include <array>
#include <cstddef>

namespace smelt::bytecode {
namespace {

struct Row {
  const char *module, *attribute, *name;
};

constexpr Row kRows[] = {
#define SMELT_TYPE(name, module, attribute) {module, attribute, module "." attribute},
#include "capture/bytecode/cpython/known_types.def"
#undef SMELT_TYPE
};

// A module that is loaded; nullptr: it is not. Nothing is imported: that would run code.
PyObject* loaded(const char* name) { return PyDict_GetItemString(PyImport_GetModuleDict(), name); }

PyTypeObject* find(const Row& row) {
  const SavedError error;
  PyObject* module = loaded(row.module);
  PyObject* found = module != nullptr ? PyObject_GetAttrString(module, row.attribute) : nullptr;
  PyErr_Clear();
  if (found == nullptr || !PyType_Check(found)) {
    Py_XDECREF(found);
    return nullptr;
  }
  return reinterpret_cast<PyTypeObject*>(found);  // held for good
}

}  // namespace

PyTypeObject* known_type(KnownType type) {
  static std::array<PyTypeObject*, std::size(kRows)> found = {};
  PyTypeObject*& at = found[static_cast<size_t>(type)];
  if (at == nullptr) at = find(kRows[static_cast<size_t>(type)]);
  return at;
}

std::vector<const char*> missing_types() {
  std::vector<const char*> missing;
  for (size_t i = 0; i < std::size(kRows); ++i)
    if (loaded(kRows[i].module) != nullptr && known_type(static_cast<KnownType>(i)) == nullptr)
      missing.push_back(kRows[i].name);
  return missing;
}

Object own_dict(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  return Object::steal(PyType_GetDict(type));
#else
  return Object::share(type->tp_dict);
#endif
}

}  // namespace smelt::bytecode
