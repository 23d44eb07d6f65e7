#include "capture/bytecode/cpython/type_state.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "capture/bytecode/cpython/known_types.h"

namespace smelt::bytecode {
namespace {

PyTypeObject* type_of(const TypeState& state) {
  return reinterpret_cast<PyTypeObject*>(state.type.get());
}

std::vector<const void*> slots_of(const PyTypeObject* type) {
  std::vector<const void*> slots{reinterpret_cast<const void*>(type->tp_getattro),
                                 reinterpret_cast<const void*>(type->tp_setattro),
                                 reinterpret_cast<const void*>(type->tp_call),
                                 reinterpret_cast<const void*>(type->tp_hash),
                                 reinterpret_cast<const void*>(type->tp_richcompare),
                                 reinterpret_cast<const void*>(type->tp_iter),
                                 reinterpret_cast<const void*>(type->tp_iternext),
                                 reinterpret_cast<const void*>(type->tp_descr_get),
                                 reinterpret_cast<const void*>(type->tp_descr_set),
                                 reinterpret_cast<const void*>(type->tp_repr),
                                 reinterpret_cast<const void*>(type->tp_str)};
  const auto add = [&](const auto* methods) {
    if (methods == nullptr) return;
    const auto* first = reinterpret_cast<const void* const*>(methods);
    slots.insert(slots.end(), first, first + sizeof(*methods) / sizeof(void*));
  };
  add(type->tp_as_number);
  add(type->tp_as_sequence);
  add(type->tp_as_mapping);
  return slots;
}

// The special methods that the type and its bases in Python define, each behind its name: C code
// asks for some of them that have no slot (__format__), and two may share one (__add__, __radd__).
std::vector<Object> special_methods(const PyTypeObject* type) {
  static const std::unordered_set<std::string_view> kNoMethods{
      "__doc__",        "__module__",      "__dict__",  "__weakref__",
      "__qualname__",   "__annotations__", "__slots__", "__orig_bases__",
      "__parameters__", "__slotnames__",   "__name__",  "__match_args__"};
  std::vector<Object> found;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    if (!can_change(base)) continue;
    const Object dict = own_dict(base);
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict.get(), &at, &key, &value)) {
      Py_ssize_t size = 0;
      const char* text = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, &size) : nullptr;
      const std::string_view name(text == nullptr ? "" : text, static_cast<size_t>(size));
      if (!name.starts_with("__") || !name.ends_with("__") || kNoMethods.contains(name)) continue;
      found.push_back(Object::share(key));
      found.push_back(Object::share(value));
    }
  }
  PyErr_Clear();
  return found;
}

bool are_same(const std::vector<Object>& a, const std::vector<Object>& b) {
  return std::ranges::equal(a, b,
                            [](const Object& x, const Object& y) { return x.get() == y.get(); });
}

}  // namespace

bool can_change(const PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) && !(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE);
}

TypeState type_state(PyTypeObject* type) {
  return {Object::share(reinterpret_cast<PyObject*>(type)), Object::share(type->tp_mro),
          special_methods(type), slots_of(type)};
}

bool has_same_bases(const TypeState& state) { return type_of(state)->tp_mro == state.bases.get(); }

bool has_same_methods(const TypeState& state) {
  const PyTypeObject* type = type_of(state);
  return state.slots == slots_of(type) && are_same(state.methods, special_methods(type));
}

}  // namespace smelt::bytecode
