// Types of Python's and PyTorch's that code asks about: one row each in known_types.def.
#pragma once

#include <cstdint>
#include <vector>

#include "capture/bytecode/cpython/object.h"

namespace smelt::bytecode {

enum class KnownType : uint8_t {
#define SMELT_TYPE(name, module, attribute) name,
#include "capture/bytecode/cpython/known_types.def"
#undef SMELT_TYPE
};

// nullptr: the module has none, or nobody has imported it.
PyTypeObject* known_type(KnownType type);
// Its very type, and no class that is made of it.
inline bool is_exactly(PyObject* object, KnownType type) {
  return Py_TYPE(object) == known_type(type);
}
// "torch.Size": those that this Python and PyTorch do not have although their modules are loaded.
std::vector<const char*> missing_types();

// The names that the type itself defines.
Object own_dict(PyTypeObject* type);
// A collections.deque, and no object of a subclass.
inline bool is_deque(PyObject* object) { return is_exactly(object, KnownType::deque); }
// A re.Match.
inline bool is_match(PyObject* object) { return is_exactly(object, KnownType::match); }

}  // namespace smelt::bytecode
