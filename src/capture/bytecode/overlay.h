// What a trace has stored in an object that existed before: a dict's key, a list's index, a field,
// to the ref of what is there now.
#pragma once

#include <optional>

#include "capture/bytecode/node.h"

namespace smelt::bytecode {

class Overlay {
 public:
  // Nothing if it was not stored to.
  std::optional<Ref> find(PyObject* key) const;
  void set(PyObject* key, Ref ref);
  // Of a list.
  std::optional<Ref> find_item(Py_ssize_t index) const;

 private:
  Object refs_;  // a dict, as the user's keys compare
};

}  // namespace smelt::bytecode
