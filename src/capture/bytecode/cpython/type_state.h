// What a class is like that can change while a program runs: what CPython calls for its objects.
#pragma once

#include <vector>

#include "capture/bytecode/cpython/object.h"

namespace smelt::bytecode {

// A class that attributes can be set on.
bool can_change(const PyTypeObject* type);

struct TypeState {
  Object type;
  Object bases;                    // in the order of lookups
  std::vector<Object> methods;     // the special methods, each behind its name
  std::vector<const void*> slots;  // what CPython calls: one that comes later shows here
};

TypeState type_state(PyTypeObject* type);  // as it is now
// Whether it still is what it was.
bool has_same_bases(const TypeState& state);
bool has_same_methods(const TypeState& state);

}  // namespace smelt::bytecode
