// What the interpreter asks about tensors. It sees no header of torch's; binding/tensors.cpp
// answers.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capture/bytecode/cpython/object.h"
#include "capture/bytecode/nodes/tensor_log.h"

namespace smelt::bytecode {

// What a tensor was like: type, dtype, device, sizes, strides, layout, requires_grad, dispatch
// keys.
class TensorGuard {
 public:
  virtual ~TensorGuard() = default;
  // No Python code runs and no error is left. `object` may be anything.
  virtual bool holds(PyObject* object) const = 0;
  // "size at dimension 0 is 5, was 8"; for a recompile's report.
  virtual std::string difference(PyObject* object) const = 0;
  // The dimensions at which the size is another one, if nothing else is.
  virtual std::vector<int> changed_sizes(PyObject* object) const = 0;
  virtual std::string str() const = 0;
};

// PyTorch's thread-local and global switches that change what ops do or what code sees: grad mode,
// inference mode, autocast, default dtype and device, deterministic flags, function modes.
struct Ambient {
  uint64_t word[4] = {};
  bool operator==(const Ambient&) const = default;
};

class Tensors {
 public:
  virtual ~Tensors() = default;
  virtual bool is_tensor(PyObject* object) const = 0;
  // A plain torch.Tensor or Parameter of a kind the log can follow; else why not.
  virtual std::optional<LogTrouble> refuse(PyObject* tensor) const = 0;
  // Modes and transforms that are switched on and see each op: no trace then.
  virtual std::optional<LogTrouble> refuse_state() const = 0;
  // A tensor as a level of a function transform has it (torch.func): the ops on what is in it are in
  // the log, and it is not.
  virtual bool is_wrapped(PyObject* tensor) const = 0;
  // A level of a transform is open on this thread, so that it sees each op.
  virtual bool is_under_transform() const = 0;
  // A backward pass from these runs on the calling thread: they are on the CPU.
  virtual bool passes_on_this_thread(PyObject* outputs) const = 0;
  // `varying`: dimensions at which it may have any size but 0 and 1.
  virtual std::unique_ptr<TensorGuard> guard(PyObject* tensor,
                                             std::span<const int> varying) const = 0;
  virtual int rank_of(PyObject* tensor) const = 0;
  virtual int64_t size_of(PyObject* tensor, int dim) const = 0;
  // nullptr: in a world without tensors.
  virtual std::unique_ptr<TensorLog> start_log() const = 0;
  // A backward pass from these (tensors, or tuples of such) calls Python code: hooks, custom
  // autograd functions.
  virtual bool backward_runs_python(PyObject* outputs) const = 0;
  // The tensors to whose gradients it would add, of those in `inputs` if there are any.
  virtual std::vector<Object> backward_leaves(PyObject* outputs, PyObject* inputs) const = 0;
  // The hooks on tensors that it calls: of a leaf, or of a tensor on the way, which is null then;
  // and the dict with the hooks. Or a custom function: its context. Nothing if it calls other code.
  struct PassHooks {
    Object leaf;
    Object dict;
    Object context;
  };
  virtual std::optional<std::vector<PassHooks>> pass_hooks(PyObject* outputs) const = 0;
  virtual Ambient ambient() const = 0;
  // "grad mode was on, is off".
  virtual std::string difference(const Ambient& was, const Ambient& is) const = 0;
};

// Set once, when the module is loaded.
Tensors& tensors();
void set_tensors(std::unique_ptr<Tensors> tensors);

}  // namespace smelt::bytecode
