// What is found in objects: a path from what the trace knows already, or what it put there itself.
// To read says where an object was found, and nothing about what it is.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "capture/bytecode/trace/trace_guards.h"

namespace smelt::bytecode {

class TraceReads : public TraceGuards {
 public:
  Ref slot_ref(int index) const;
  // Whether the trace has set or deleted the dict's item, or has taken stock of all items.
  bool is_changed(PyObject* dict, PyObject* key) const;

  // Each returns the ref of `object`, which was found there. Container and parent must be constants
  // (ref 0) or known to the trace; stops otherwise.
  Ref read_dict(Value dict, PyObject* key, PyObject* object);
  void read_absent(Value dict, PyObject* key);
  Ref read_item(Value sequence, Py_ssize_t index, PyObject* object);
  Ref read_cell(Value cell, PyObject* object);
  // A number in a slice that the trace made: start, stop, step. 0: it is the same in each call.
  Ref read_slice(PyObject* slice, Py_ssize_t index) const;
  // instance_dict, closure, defaults, kwdefaults, method_*, type, attribute.
  Ref read(NodeKind kind, Value parent, PyObject* key, int index, PyObject* object);
  // _PyType_Lookup(type, name) gave `found` (nullptr: nothing): the ref of `found`.
  Ref read_type(PyTypeObject* type, PyObject* name, PyObject* found);
  // A function behind lru_cache gave `result`, which it remembers: each cached call asks it again.
  Ref remembered(PyObject* function, PyObject* arguments, PyObject* keywords, PyObject* result);

  void guard_length(Value value);
  void guard_keys(Value dict);

 protected:
  ~TraceReads() = default;

  // The dimensions of a tensor from outside at which its size varies; it has been found to have
  // some (trace_sizes.h).
  virtual std::vector<int> varying_dims(Ref) const { return {}; }
  virtual void vary(Ref, std::span<const int>) {}

  Ref path(NodeKind kind, Ref parent, PyObject* key, int index, PyObject* object);
  // The ref of something found in an object whose contents are known.
  Ref element_ref(PyObject* object);

  std::vector<Ref> slot_refs_;
  std::vector<Ref> tensor_paths_;  // nodes of tensors from outside

 private:
  Ref lazy_value(Tracked& dict, PyObject* key);  // 0: it is none

  // Tuples and such that are constants, with a path to them.
  std::unordered_map<PyObject*, Ref> compounds_;
};

}  // namespace smelt::bytecode
