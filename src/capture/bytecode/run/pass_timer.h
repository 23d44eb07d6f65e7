// How long backward passes take that start from a call's results: part of what the call costs.
#pragma once

#include <Python.h>

#include <cstdint>
#include <functional>

namespace smelt::bytecode {

class PassTimer {
 public:
  virtual ~PassTimer() = default;
  // Whether ops are written down for a backward pass now.
  virtual bool with_gradients() const = 0;
  // Code is being made on other threads: what a call takes now says nothing.
  virtual bool is_compiling() const = 0;
  // The host's clock says nothing about a call with this result: a device computes it.
  virtual bool is_on_device(PyObject* result) const = 0;
  // `spent` is told of each pass over the tensors in `result` how long it took from there to its
  // end; on whatever thread it runs, without the GIL. False: no pass can come.
  virtual bool time_passes(PyObject* result, std::function<void(int64_t)> spent) const = 0;
};

// Set once, when the module is loaded.
const PassTimer& pass_timer();
void set_pass_timer(const PassTimer* timer);

}  // namespace smelt::bytecode
