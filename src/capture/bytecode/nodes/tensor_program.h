// The tensor ops of a segment as a program, seen from Python objects.
#pragma once

#include <Python.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/symbols.h"

namespace smelt::bytecode {

// The tensor ops of a segment, ready to run.
class TensorProgram {
 public:
  virtual ~TensorProgram() = default;
  // Borrowed inputs in, tensors first and then the scalars, each an int that fits 64 bits or a
  // float; new references out. False with a Python error set; without one, the program does not
  // hold for these inputs, and has changed nothing. Thread-safe.
  struct Failure {
    bool clean = true;    // nothing has changed: the frame can be run by CPython instead
    size_t position = 0;  // else: the op that failed, as TensorLog::position() counted it
  };
  // On a failure that is not clean, `outputs` has those that there were by then.
  virtual bool run(PyObject* const* inputs, PyObject** outputs, Failure* failure) const = 0;
  // Each failure is clean, as long as nobody watches.
  virtual bool fails_cleanly() const = 0;
  // Somebody watches: hooks on saved tensors see what a run saves, and may raise errors of their
  // own. Asked where it is to be run.
  virtual bool is_watched() const = 0;
  virtual size_t ops() const = 0;
  // There could be no graph, and its results take part in autograd.
  virtual bool is_left_to_autograd() const = 0;
  // The graph as text, for explain().
  virtual std::string str() const = 0;
  // What it relies on about sizes, in the symbols of its request.
  virtual std::vector<Guard> size_guards() const { return {}; }
  // Of sizes that have programs of their own, or were tried, a sentence each.
  virtual std::vector<std::string> own_sizes() const { return {}; }
};

}  // namespace smelt::bytecode
