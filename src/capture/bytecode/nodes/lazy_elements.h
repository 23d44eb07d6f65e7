// Numbers in a container that the trace made or appended to, which are what they will be in the
// call: neither guarded nor constants. Places are those at which they were put.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "capture/bytecode/nodes/node.h"

namespace smelt::bytecode {

// bool has two values, and decides about types: it is not among these.
inline bool is_plain_number(PyObject* object) {
  return PyFloat_CheckExact(object) || PyLong_CheckExact(object);
}

// An int or float that a tensor op can take as a run-time scalar.
bool fits_scalar(PyObject* number);

// A step that puts objects somewhere and does nothing else with them.
bool keeps_elements(StepKind kind);
// An object whose fields may be numbers of the program: of a class written in Python, or the
// context of a custom autograd function.
bool may_have_lazy_fields(PyObject* object);

class LazyElements {
 public:
  bool empty() const { return elements_.empty(); }
  // 0: it is none of these.
  Ref item(Py_ssize_t index) const;
  // Of a dict, by a str.
  Ref value(PyObject* key) const;

  void add_item(Py_ssize_t index, Ref ref) { elements_.push_back({{}, index, ref}); }
  // In the place of what was there; ref 0: a number that is known. And taken out of a list, so that
  // those behind it move up.
  void set_item(Py_ssize_t index, Ref ref);
  void remove_item(Py_ssize_t index);
  // In the place of what the key had before, which with ref 0 is all.
  void set_value(PyObject* key, Ref ref);
  void clear() { elements_.clear(); }
  // The refs; there are none any more.
  std::vector<Ref> take();

 private:
  struct Element {
    Object key;  // of a dict
    Py_ssize_t index = 0;
    Ref ref = 0;
  };
  std::vector<Element> elements_;
};

}  // namespace smelt::bytecode
