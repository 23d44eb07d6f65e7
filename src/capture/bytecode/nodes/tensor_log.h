// What a trace asks of the log that its tensor ops are written to.
//
// While a trace runs, every op is computed for real, and written down in a log at the top of
// PyTorch's dispatcher, above autograd: which op, on which values, under which grad mode and
// autocast. A segment's log becomes its TensorProgram.
#pragma once

#include <Python.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log_ids.h"
#include "base/number.h"
#include "base/settings.h"
#include "base/varying_sizes.h"
#include "capture/bytecode/cpython/object.h"
#include "capture/bytecode/nodes/breaks.h"
#include "capture/bytecode/nodes/tensor_program.h"

namespace smelt::bytecode {

// What stopped the log from being a faithful account.
struct LogTrouble {
  BreakReason reason;
  std::string detail;
};

struct ProgramRequest {
  std::vector<LogValue> inputs;          // in the order that run() takes them
  std::vector<LogValue> outputs;         // likewise; an input may be among them
  std::vector<ScalarId> scalars;         // behind the inputs
  std::vector<Number> examples;          // what the scalars are now
  std::vector<NumberStep> numbers;       // that the program reads and computes itself
  std::vector<ScalarId> wanted_numbers;  // of these, behind the outputs
  std::vector<bool> module_state;        // by input: it is a parameter or buffer of a module
  VaryingSizes sizes;                    // by those inputs and scalars
  Settings settings;
  PyObject* backend_callable = nullptr;
};

// What C code did with the stand-ins that it was given.
struct StandInUse {
  std::vector<ScalarId> looked_at, sizes, compared;  // asked for; sizes of ops; computed with
  size_t ops = 0;                                    // ops that were called
};

class TensorLog {
 public:
  virtual ~TensorLog() = default;
  // Ops are written down from here on until pause(), on this thread.
  virtual void resume() = 0;
  virtual void pause() = 0;
  // A tensor that existed before, and could be an input.
  virtual LogValue add_input(PyObject* tensor) = 0;
  // The value behind the tensor, -1 if the log never saw it.
  virtual LogValue value_of(PyObject* tensor) const = 0;
  virtual bool is_input(LogValue value) const = 0;
  // Its shape depends on contents: no one may look at it.
  virtual bool is_dynamic(LogValue value) const = 0;
  // A counter or flag: it has one element, and is computed from tensors of one element alone.
  virtual bool is_single(LogValue value) const = 0;
  // Computed from whole numbers and truth values alone: positions, tokens, masks.
  virtual bool is_whole(LogValue value) const = 0;
  // Somebody is told of each tensor that ops keep for a backward pass: hooks on saved tensors.
  virtual bool has_saved_hooks() const = 0;
  // What is in it is the same in each call: it depends on numbers and sizes that are guarded.
  virtual bool is_fixed(LogValue value) const = 0;
  // Random numbers alone decide about it, and it may come out otherwise.
  virtual bool is_gamble(LogValue value) const = 0;
  // The same of the tensor of which take_number() gave this number.
  virtual bool is_gambled_number(int32_t number) const = 0;
  // It tells of all elements of a tensor that something holds, or of none that it does: a check
  // that was passed, if this is its truth.
  virtual bool is_check(LogValue value, bool truth) const = 0;
  // An op that the log has written down is being computed.
  virtual bool is_in_op() const = 0;
  // How many ops there are so far; forget those behind `position`.
  virtual size_t position() const = 0;
  virtual void rewind(size_t position) = 0;
  // A call that is kept as one op, and made again as it is by each run. Before it: its tensors are
  // looked up; arguments may be tensors, constants and tuples of both. After it: it takes the place
  // of the ops since then, with the tensors in `result`. Nothing or false: trouble. A call that was
  // begun need not be ended; then its ops stay.
  using Call = size_t;
  virtual std::optional<Call> begin_call(PyObject* callee, std::span<PyObject* const> arguments,
                                         PyObject* names) = 0;
  virtual bool end_call(Call call, PyObject* result) = 0;
  // The same for a custom autograd function, given these arguments: what its forward did is kept
  // with it, if it can be.
  virtual bool end_function(Call call, std::span<PyObject* const> arguments, PyObject* result) = 0;
  // The context of such a function, whose backward may be followed.
  virtual bool is_function(PyObject* context) const = 0;
  // `saved`, a tuple, is what saved_tensors of the context gave.
  virtual void meet_saved(PyObject* context, PyObject* saved) = 0;
  // An op behind `position`, be it one that failed, may have effects: it looks at Python objects,
  // or at the world.
  virtual bool has_effects(size_t position) const = 0;
  // What comes until end_recomputed() is computed again by its backward; `keeps_random_state`: with
  // the same random numbers.
  virtual void begin_recomputed() = 0;
  virtual void end_recomputed(bool keeps_random_state) = 0;
  // From now on `.item()` is an op whose result is a number of the program's.
  virtual void keep_numbers() = 0;
  // Asked before the size of a result, or a number that C code reads, is taken for what it is in
  // each run, although contents decide it; the program checks it.
  virtual void set_guess(std::function<bool()> may_guess) = 0;
  // Asked before a size that contents decide is taken for one that is another in each run: a number
  // that the program reads (late_sizes).
  virtual void set_count(std::function<bool()> may_count) = 0;
  // The number that was read at `item` is used as a size.
  virtual void count_number(int32_t item) = 0;
  // What is read at `item` is decided by whole numbers alone, and most often what it was.
  virtual bool is_steady_number(int32_t item) const = 0;
  // The place of the number that the only op since `position` gave; nothing if it was another op.
  // One that is not asked for is trouble.
  virtual std::optional<int32_t> take_number(size_t position) = 0;
  // The program holds if the number is true, or is not, as `seen` is now.
  virtual void expect(ScalarId number, PyObject* seen, bool truth) = 0;
  // tensor.grad has been set, to None or a tensor. False: trouble.
  virtual bool set_grad(PyObject* tensor, PyObject* grad) = 0;
  // A backward pass that adds to gradients, of these inputs only if there are any: what it takes is
  // looked up before, and after it the gradients are. False: trouble.
  virtual bool begin_backward(PyObject* outputs, PyObject* seeds, PyObject* inputs, bool keep_graph,
                              bool create_graph) = 0;
  virtual void end_backward() = 0;
  // torch.autograd.grad: likewise; the gradients are what it gave.
  virtual bool begin_grad(PyObject* outputs, PyObject* seeds, PyObject* inputs, bool keep_graph,
                          bool create_graph, bool allow_unused) = 0;
  virtual bool end_grad(PyObject* grads) = 0;
  // A pass that a function transform makes: until it has ended, its ops are ops like others.
  virtual void follow_pass(bool follows) = 0;
  // No size of the program varies, now and later.
  virtual void fix_sizes() = 0;
  // requires_grad_() has been called on a tensor. False: it is not one that the ops made.
  virtual bool require_grad(PyObject* tensor, bool value) = 0;
  // retain_grad(), likewise; and those of these tensors that a backward pass comes to.
  virtual bool retain_grad(PyObject* tensor) = 0;
  virtual std::vector<Object> retained(PyObject* outputs) const = 0;
  // How much higher the version of an input is than at the start. Nothing for a result whose
  // version is that of an input.
  virtual std::optional<int64_t> version_rise(PyObject* tensor) const = 0;
  // Nobody but the trace has this input any more: its contents may go, if they are nobody else's.
  virtual void free_contents(PyObject* tensor) = 0;
  // `data` is what `.data` gave. False: trouble.
  virtual bool take_data(PyObject* tensor, PyObject* data) = 0;
  // The last call that was kept has registered a hook on the tensor, which ops made.
  virtual void note_registration(PyObject* tensor) = 0;
  // The pass calls a hook or a custom function (Tensors::pass_hooks), this function with these
  // arguments; what it gave, or nullptr. False: trouble.
  virtual bool begin_hook(PyObject* function, PyObject* const* arguments) = 0;
  virtual bool end_hook(PyObject* result) = 0;
  // The inputs that the ops so far take, each once.
  virtual std::vector<LogValue> used_inputs() const = 0;
  // The run-time scalars that the ops so far take, each once.
  virtual std::vector<ScalarId> used_scalars() const = 0;
  // An object that PyTorch's C functions take for this int or float, which may be another one in
  // the next call: an op that gets it is written down with the id in the number's place. A new
  // reference; nullptr without an error if there can't be one now. No code but PyTorch's may get
  // hold of it.
  // `is_size`: ops may take it where they take sizes.
  virtual PyObject* stand_in(PyObject* number, ScalarId id, bool is_size) = 0;
  // No stand-ins are about any more.
  virtual StandInUse end_stand_ins() = 0;
  // -- sizes that vary
  // A size of an input, which is `hint` now, as an expression; and inputs that have such sizes.
  virtual Size add_size_symbol(int64_t hint) = 0;
  virtual void vary(LogValue input, const SymbolicDims& dims) = 0;
  // The line of the program, for what is relied on.
  virtual void set_size_locator(std::function<std::string()> where) = 0;
  // Finds out the sizes of what the ops so far have made. `size_of`: of a run-time scalar, nothing
  // if it is none. False: they can't be known, `why` says what stands in the way.
  virtual bool follow_sizes(const std::function<std::optional<Size>(ScalarId)>& size_of,
                            std::string* why) = 0;
  // Of what they have made: sizes that contents decide, in the order of their symbols, which have
  // come among the others; what they are now, and the number that the program reads.
  struct LateSize {
    Size size;
    int64_t now = 0;
    int32_t item = -1;
  };
  virtual std::vector<LateSize> late_sizes() const = 0;
  // Some op gives the number.
  virtual bool has_number(int32_t item) const = 0;
  // There are such ops.
  virtual bool counts() const = 0;
  virtual std::optional<Sizes> sizes_of(LogValue value) const = 0;
  virtual int64_t hint(const Size& size) const = 0;
  // What the ops so far rely on.
  virtual const std::vector<Guard>& size_guards() const = 0;
  virtual const SymbolTable& size_symbols() const = 0;
  // Set by an op that can't be repeated: data-dependent, or on a tensor of unknown origin.
  // `thorough`: every input is looked at for changes by code that was not seen, not only those of
  // late.
  virtual std::optional<LogTrouble> take_trouble(bool thorough) = 0;
  // The ops up to `position` as a program; nullptr with a Python error set if that failed. Falls
  // back by itself to running the log op by op where a back end refuses.
  virtual std::unique_ptr<TensorProgram> finish(const ProgramRequest& request) = 0;
};

}  // namespace smelt::bytecode
