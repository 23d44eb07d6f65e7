// What a trace has stored in an object that existed before: a dict's key, a list's index, a field,
// to the ref of what is there now. Keys are compared by their own __hash__ and __eq__: who asks
// during a trace does so by stored_items.h.
#pragma once

#include <optional>

#include "capture/bytecode/nodes/node.h"

namespace smelt::bytecode {

class Overlay {
 public:
  // Nothing if it was not stored to.
  std::optional<Ref> find(PyObject* key) const;
  void set(PyObject* key, Ref ref);
  // Of a list.
  std::optional<Ref> find_item(Py_ssize_t index) const;
  bool empty() const { return !refs_; }

 private:
  Object refs_;  // a dict, as the user's keys compare
};

}  // namespace smelt::bytecode
