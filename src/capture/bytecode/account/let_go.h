// References that are being given up while a trace runs. The trace holds every object that it
// knows, since addresses name them; so whoever drops one notes it here, and the trace looks later
// whether it is the only one that still has it.
#pragma once

#include <Python.h>

#include <span>
#include <vector>

#include "capture/bytecode/nodes/node.h"

namespace smelt::bytecode {

class LetGo {
 public:
  // To be called before the reference goes. One that nobody else has is freed by that, and lets go
  // of what it has in its turn; one that many have stays.
  void note(PyObject* object) {
    if (object == nullptr) return;
    const Py_ssize_t count = Py_REFCNT(object);
    if (count == 1)
      note_contents(object);
    else if (count <= kFew)
      objects_.push_back(object);
  }
  // The same for all that an object has references to. `depth`: of what goes inside of what goes.
  void note_contents(PyObject* object, int depth = 0);

  // A step is about to put something in the place of what is there, or to take that out.
  void note_replaced(StepKind kind, std::span<const Value> inputs);

  size_t mark() const { return objects_.size(); }
  bool has_any(size_t since) const { return objects_.size() > since; }
  // The last one noted, which may be gone by now: only its address counts.
  PyObject* take() {
    PyObject* object = objects_.back();
    objects_.pop_back();
    return object;
  }

 private:
  static constexpr Py_ssize_t kFew = 16;
  static constexpr int kDeepest = 16;

  std::vector<PyObject*> objects_;
};

}  // namespace smelt::bytecode
