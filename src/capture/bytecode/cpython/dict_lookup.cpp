// The dict's own way to a key (dictobject.c), with a comparison that calls nobody.
#define Py_BUILD_CORE_MODULE 1
#include "capture/bytecode/cpython/dict_lookup.h"
// The headers' other branch uses C11 atomics, which C++ lacks.
#undef HAVE_STD_ATOMIC
#include <internal/pycore_dict.h>

#include "capture/bytecode/cpython/constants.h"
#include "capture/bytecode/cpython/same_value.h"

namespace smelt::bytecode {
namespace {

// What a dict has for a key. Neither found nor absent: an __eq__ of the user's would have to say.
struct Lookup {
  PyObject* found = nullptr;
  bool is_absent = false;
};

bool is_number(PyObject* object) {
  return PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyBool_Check(object) ||
         PyComplex_CheckExact(object);
}

// Whether the keys, which have the same hash, are equal; -1: that is for the user's code to say.
int are_equal_keys(PyObject* a, PyObject* b) {
  if (a == b) return 1;
  const bool is_plain = (PyUnicode_CheckExact(a) || PyBytes_CheckExact(a) || is_number(a)) &&
                        (PyUnicode_CheckExact(b) || PyBytes_CheckExact(b) || is_number(b));
  if (!is_plain) return is_constant(a) && is_constant(b) && same_value(a, b) ? 1 : -1;
  if (Py_TYPE(a) != Py_TYPE(b) && !(is_number(a) && is_number(b))) return 0;
  return PyObject_RichCompareBool(a, b, Py_EQ);
}

// The dict's own way to the key (dictobject.c), with a comparison that calls nobody.
Lookup look_up(PyObject* dict, PyObject* key, Py_hash_t hash) {
  const PyDictKeysObject* keys = reinterpret_cast<PyDictObject*>(dict)->ma_keys;
  if (keys->dk_kind != DICT_KEYS_GENERAL) {
    if (!PyUnicode_CheckExact(key)) return {nullptr, !PyUnicode_Check(key)};
    PyObject* found = _PyDict_GetItem_KnownHash(dict, key, hash);  // strs are compared as such
    return {found, found == nullptr};
  }
  const auto index_at = [&](size_t slot) -> Py_ssize_t {
    const void* indices = keys->dk_indices;
    const int size = keys->dk_log2_size;
    if (size < 8) return static_cast<const int8_t*>(indices)[slot];
    if (size < 16) return static_cast<const int16_t*>(indices)[slot];
    return size < 32 ? static_cast<const int32_t*>(indices)[slot]
                     : static_cast<const int64_t*>(indices)[slot];
  };
  const PyDictKeyEntry* entries = DK_ENTRIES(reinterpret_cast<PyDictObject*>(dict)->ma_keys);
  const size_t mask = (size_t{1} << keys->dk_log2_size) - 1;
  size_t slot = static_cast<size_t>(hash) & mask;
  for (auto perturb = static_cast<size_t>(hash);; slot = (slot * 5 + perturb + 1) & mask) {
    const Py_ssize_t index = index_at(slot);
    if (index == DKIX_EMPTY) return {nullptr, true};
    perturb >>= 5;
    if (index < 0 || entries[index].me_hash != hash) continue;
    const int equal = are_equal_keys(entries[index].me_key, key);
    if (equal < 0) return {};
    if (equal == 1) return {entries[index].me_value, false};
  }
}

}  // namespace

PyObject* find_item(PyObject* dict, PyObject* key, Py_hash_t hash) {
  return look_up(dict, key, hash).found;
}

bool is_absent(PyObject* dict, PyObject* key, Py_hash_t hash) {
  return look_up(dict, key, hash).is_absent;
}

}  // namespace smelt::bytecode
