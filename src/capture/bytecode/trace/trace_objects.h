// The objects that a trace knows, and where each came from: the bottom of a trace. Objects are nodes
// with numbers (Ref), which guards, steps and numbers refer to.
#pragma once

#include <vector>

#include "capture/bytecode/account/let_go.h"
#include "capture/bytecode/account/tracked.h"
#include "capture/bytecode/account/tracked_objects.h"
#include "capture/bytecode/cpython/constants.h"
#include "capture/bytecode/nodes/flat_index.h"
#include "capture/bytecode/trace/stoppable_log.h"

namespace smelt::bytecode {

class TraceObjects : public StoppableLog {
 public:
  // The node of a tracked object; 0 for others (and for what is unknown).
  Ref ref_of(PyObject* object) const {
    if (object == Py_None || Py_TYPE(object) == &PyLong_Type) return 0;  // never tracked
    const Tracked* tracked = find(object);
    return tracked == nullptr ? born_tensor(object) : tracked->ref;
  }
  bool is_tracked(PyObject* object) const;
  bool is_born(PyObject* object) const;  // made by this trace, tensors included
  // A value with its ref: the tracked object's, else `ref`.
  Value value(PyObject* object, Ref ref = 0) const;
  // Of a number that the tensor program reads, or that is computed from such.
  bool is_late(Ref ref) const { return ref != 0 && nodes_[ref].late; }
  // A tensor that a C call returned: its ref, if the log knows it; else stops.
  Ref tensor(PyObject* object);
  // An object that is the same as long as a guarded one is: the model behind a compiled model.
  Ref object_behind(PyObject* object) { return constant_node(object); }
  // Keeps an object alive until the trace ends, so that its address names it.
  void hold(PyObject* object);
  LetGo let_go;  // what the program may have dropped

 protected:
  TraceObjects();
  ~TraceObjects() = default;

  Tracked* find(PyObject* object) { return objects_.find(object); }
  const Tracked* find(PyObject* object) const { return objects_.find(object); }
  // Tensors that ops made are known by their value in the log, which does not keep them alive.
  Ref born_tensor(PyObject* object) const {
    return born_tensors_.empty() || is_no_tensor(object) ? 0 : find_born(object);
  }
  bool is_path(Ref ref) const;
  // It can't be made again, or only when the segment ends: an iterator.
  bool is_passing(PyObject* object) const;

  Ref add(Node node);
  // A number that is computed from others; what it asks of them is for the caller to guard.
  Ref add_scalar(ScalarOp op, int arg, Value a, Value b, PyObject* result, bool late = false);
  Tracked& track(PyObject* object, Ref ref, bool born);
  Ref constant_node(PyObject* object);  // the same in every call: a module's dict, a type
  Ref parent_ref(Value parent);

  std::vector<Node> nodes_;
  TrackedObjects objects_;
  FlatIndex<PathKey, PathHash> paths_;  // to refs
  std::vector<Ref> born_tensors_;       // by value of the log; 0: it is none
  std::vector<Object> held_;

 private:
  // By its type alone: no class has both bases.
  static bool is_no_tensor(PyObject* object) {
    constexpr unsigned long kOthers = Py_TPFLAGS_LONG_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS |
                                      Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_BYTES_SUBCLASS |
                                      Py_TPFLAGS_UNICODE_SUBCLASS | Py_TPFLAGS_DICT_SUBCLASS |
                                      Py_TPFLAGS_BASE_EXC_SUBCLASS | Py_TPFLAGS_TYPE_SUBCLASS;
    return (Py_TYPE(object)->tp_flags & kOthers) != 0;
  }
  Ref find_born(PyObject* object) const;
};

}  // namespace smelt::bytecode
