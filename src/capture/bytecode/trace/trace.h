// The account of one run through a piece of code. The interpreter executes everything for real and
// tells the trace what it did; the trace keeps for each object where it came from, which conditions
// made the run go this way (guards), which tensor ops there were (the log), and what was done to
// Python objects (steps). That makes a Segment.
//
// Nothing is undone when a trace stops: execution is real. What was recorded since the root's
// current instruction began is dropped; the segment ends in front of it.
// What is kept about objects:
//  - atoms (None, int, float, str, ...) are known by value. One that was read from outside has a
//    Ref and no guard as long as nothing depends on it; use() adds the guard. One stored in an
//    object that the trace made is used; numbers in tuples, lists and dicts stay lazy.
//  - fixed objects (types, functions, modules, dtypes) are known by identity, likewise lazily.
//  - everything else is tracked by identity, in a table from object to Ref: it existed before
//    (`outside`: a path leads to it), or a step or tensor op made it (`born`).
//  - an object that is none of these is unknown: stop().
//
// Four verbs say how much a run comes to depend on, from least to most:
//   settle   a number that stayed lazy in a container is guarded by value: C code may look at it
//   use      the run depends on all of a value: atoms by value, fixed objects by identity, tensors
//            by metadata, containers by their elements
//   own      all that is in a container is guarded, so that it can be changed and read freely
//   touch    C code will walk through an object: all that it can reach is used (builtin_call.h)
// To read is less: it says where an object was found, and nothing about what it is.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/bytecode/cpython/constants.h"
#include "capture/bytecode/nodes/flat_index.h"
#include "capture/bytecode/trace/backward_pass.h"
#include "capture/bytecode/trace/guesses.h"
#include "capture/bytecode/trace/let_go.h"
#include "capture/bytecode/trace/requirements.h"
#include "capture/bytecode/trace/state_seen.h"
#include "capture/bytecode/trace/stoppable_log.h"
#include "capture/bytecode/trace/tracked.h"
#include "capture/bytecode/trace/tracked_objects.h"
#include "capture/bytecode/trace/varying.h"

namespace smelt::bytecode {

class Follower;
class ProgramNumbers;

class Trace : public StoppableLog {
 public:
  // `slots`: the root frame's slots at the start.
  Trace(PyObject* const* slots, size_t count);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // The root's state in front of an instruction: where the trace can end. `good`: all live objects
  // can be made again.
  void checkpoint(int offset, int depth, std::span<PyObject* const> slots,
                  std::span<const Ref> refs);

  // -- where objects come from
  // The node of a tracked object; 0 for others (and for what is unknown).
  Ref ref_of(PyObject* object) const;
  bool is_tracked(PyObject* object) const;
  bool is_born(PyObject* object) const;  // made by this trace, tensors included
  // A value with its ref: the tracked object's, else `ref`.
  Value value(PyObject* object, Ref ref = 0) const;
  Ref slot_ref(int index) const;

  // Whether the trace has set or deleted the dict's item, or has taken stock of all items.
  bool is_changed(PyObject* dict, PyObject* key) const;

  // -- reading; each returns the ref of `object`, which was found there. Container and parent must
  //    be constants (ref 0) or known to the trace; stops otherwise.
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

  // -- guards; on constants and on what the trace made they say nothing new
  // The run depends on this value itself, all of it: atoms by value, fixed objects by identity,
  // tensors by metadata, tuples, lists, dicts and sets by their elements. Stops for what can't be
  // compared.
  void use(Value value);
  void guard_type(Value value);
  void guard_same(Value value);
  void guard_length(Value value);
  void guard_keys(Value dict);
  void guard_truth(Value value, bool truth);  // atoms and lazy scalars; containers by length
  void guard_function(Value function);
  void guard_alias(Value a, Value b, bool same);
  // C code that looks at some state and calls no Python code gave a constant. has_read(): it has
  // been asked before.
  void guard_reading(PyObject* function, PyObject* arguments, PyObject* value);
  // Asks it, and guards the answer; empty if that is no constant.
  Object read_state(PyObject* function, PyObject* arguments);
  bool has_read(PyObject* function, PyObject* arguments) const;

  // A function behind lru_cache gave `result`, which it remembers: each cached call asks it again.
  Ref remembered(PyObject* function, PyObject* arguments, PyObject* keywords, PyObject* result);

  // -- computing; all operands atoms. Folded (0) if none of them has a ref.
  Ref scalar(ScalarOp op, int arg, Value a, Value b, PyObject* result);
  // function(a) or function(a, b), where it is one in C that depends on nothing else.
  Ref scalar_call(PyObject* function, Value a, Value b, PyObject* result);

  // The number that the tensor program reads at `item` (TensorLog::take_number). What is computed
  // from it the program computes too. Where the run depends on it, that is a guess.
  Ref number(PyObject* object, int32_t item);
  bool is_late(Ref ref) const { return ref != 0 && nodes_[ref].late; }

  // -- gradients
  // tensor.grad is what the trace has made it.
  bool has_set_grad(PyObject* tensor) const {
    return backward.grads.contains(log_->value_of(tensor));
  }
  void set_grad(Value tensor, Value grad);        // it has been set
  void add_grads(std::span<const Value> leaves);  // a backward pass has added to theirs
  void note_grad(Value tensor);

  // Whether an op shall take this number as what it is in each call. Numbers in the root's slots
  // do, those that the run itself changes, and those that have changed since an earlier trace; so
  // does what is computed from such. All others are part of the program.
  bool is_runtime_scalar(Value number) const;

  // -- sizes of tensors that vary (varying.h)
  Varying sizes;
  // Before anything was traced.
  void vary_sizes(const VaryingDims* dims);
  // Asks the log whether the ops since the last call can be repeated, stops if not, and finds out
  // what they rely on about sizes.
  void check_log(bool thorough = false) {
    StoppableLog::check_log(thorough);
    if (sizes.any()) follow_sizes();
  }
  // The number that the tensor's size is; 0: it is the same in each call. varies(): some size of it
  // is none.
  Ref size_of(PyObject* tensor, int dim);
  bool varies(PyObject* tensor);
  // Whether the number is computed from such sizes alone, as ops take them.
  bool is_size(Ref number) const;
  // What the ops so far rely on about sizes is guarded. Called behind ops, while the line is known.
  void follow_sizes();
  // The run depends on all sizes of this tensor, or on all that there are.
  void pin_sizes_of(PyObject* tensor);
  void pin_sizes(const std::string& why);

  // -- making and changing
  // Writes down a step whose result is a new object; it is tracked as born from now on. Atoms among
  // the inputs are used.
  Ref make(StepKind kind, std::span<const Value> inputs, PyObject* object, int arg = 0,
           PyObject* names = nullptr);
  // A step that changes inputs[0], or with `call` something else. inputs[0] must be tracked or
  // constant. Called before the change is made. Reading after writing is seen to for dicts
  // (set_item, del_item) and cells; for other containers call own() before.
  void effect(StepKind kind, std::span<const Value> inputs, int arg = 0, PyObject* names = nullptr);
  // A call that makes an object and changes something besides.
  Ref make_by_effect(std::span<const Value> callee_and_arguments, PyObject* object);
  // A call that changes something and returns `result`, an atom or fixed object, or nullptr.
  void effect_call(std::span<const Value> callee_and_arguments, PyObject* names);
  bool is_lazy_number(Value value) const;  // one that a container can have as what it will be
  bool keeps_elements_apart(PyObject* list) const;  // from outside: single items are its account
  void drop_contents(Value list);  // all of them are about to go: what they were does not matter
  // Numbers in these containers, and in containers in them, are settled: C code looks at them.
  void settle_inside(std::span<const Value> containers);
  // All that is in the list, set or deque is guarded now: it can be changed and read freely.
  void own(Value container);
  // An object whose elements are known, and which can't be made again: a zip, an iterator over a
  // dict. No segment ends while one is alive.
  void transient(PyObject* object);
  LetGo let_go;                                // what the program may have dropped
  void depend_on_finaliser(PyObject* object);  // it is dropped here, in some calls
  // An object that nobody but the trace has any more, of the transients and of those noted since
  // that mark; empty: none. Then the trace does not know it any more.
  Object take_dropped(size_t since);
  bool has_transients() const { return !transients_.empty(); }
  // An iterator over a list, tuple or dict, which can be made again at whatever position it has.
  void iterator(PyObject* iterator, Value iterated);
  // One of these that existed before is followed from now on: its position is guarded. False: it is
  // something else, or not to be followed.
  bool open_iterator(PyObject* iterator);
  // A tensor that a C call returned: its ref, if the log knows it; else stops.
  Ref tensor(PyObject* object);
  // Something that C code made just now out of what is known: an atom, a tensor of the log, a
  // tuple, list, dict or set of such; stops for others. A constant of `holders` at most is new.
  Ref adopt(PyObject* object, int holders = 1);
  // Where an iterator that the trace made or opened stands, and over what.
  bool iterated(PyObject* iterator, Value* over, int* position) const;
  // An object that is the same as long as a guarded one is: the model behind a compiled model.
  Ref object_behind(PyObject* object) { return constant_node(object); }
  // Keeps an object alive until the trace ends, so that its address names it.
  void hold(PyObject* object);

  // How far the account is. has_changed(): a step since then changes something that was there
  // before. Of PyTorch's switches the log keeps account itself.
  using Mark = TraceMark;
  Mark mark() const { return {steps_.size(), static_cast<Ref>(nodes_.size())}; }
  bool has_changed(Mark since) const;
  // A change so far that code which runs among the tensor ops would miss in a cached call, since
  // steps come behind them. What a cached function remembers is none, nor is context_values.
  bool has_pending_change() const;

  // -- the end
  // With a value returned by the root. An error of a user's back end is left set. Nothing if no
  // progress was made, or if it can't be done (stopped() then says why).
  using Request = SegmentRequest;
  std::optional<TraceResult> finish_return(Value value, const Request& request);
  // In front of the checkpoint's instruction.
  std::optional<TraceResult> finish_break(const Request& request);
  int exit_offset() const { return checkpoint_.offset; }
  // Lets go of all objects but those that running code asked to hold(); the segment is made.
  void release();

  Follower* follower = nullptr;  // who follows calls; set by who traces
  size_t bytecodes = 0;          // run so far, for statistics and limits
  Object code;                   // of the root's frame, for the names of its variables
  // Paths of numbers that change, as path_text() writes them; nullptr: no run-time scalars.
  const std::unordered_set<std::string>* changing = nullptr;
  Guesses guesses;
  // Whether this line of the program has not been guessed about that often yet.
  bool may_guess_here(int most);
  BackwardPass backward;
  StateSeen state;
  std::unordered_set<PyObject*> views;    // mapping proxies of classes, which are guarded
  bool handles = false, catches = false;  // as in TraceResult
  bool opens_iterators = true;            // open_iterator()
  size_t opened_iterators = 0;

 private:
  Ref add(Node node);
  Ref path(NodeKind kind, Ref parent, PyObject* key, int index, PyObject* object);
  Ref constant_node(PyObject* object);  // the same in every call: a module's dict, a type
  Ref parent_ref(Value parent);
  Ref element_ref(PyObject* object);
  Ref adopt_constant(PyObject* object, int holders);
  Tracked* find(PyObject* object);
  const Tracked* find(PyObject* object) const;
  // Tensors that ops made are known by their value in the log, which does not keep them alive.
  Ref born_tensor(PyObject* object) const;
  Tracked& track(PyObject* object, Ref ref, bool born);
  Object forget(PyObject* object);
  bool is_dropped(PyObject* object);
  void note_replaced(StepKind kind, std::span<const Value> inputs);
  void expect(Ref number, bool truth);
  void expect_value(Ref number);
  bool prepare_operand(Value number);
  bool is_changing(Ref ref) const;
  void note_changing(Ref stored);
  // Elements of what is made: numbers stay lazy in tuples, lists and dicts.
  std::vector<Operand> elements(StepKind kind, std::span<const Value> values, LazyElements& lazy);
  std::vector<int> varying_dims(Ref tensor) const;
  void vary(Ref tensor, std::span<const int> dims);
  void start_sizes();
  Ref add_scalar(ScalarOp op, int arg, Value a, Value b, PyObject* result, bool late = false);
  Ref number_of(const Size& size);
  Ref relation_of(const Guard& guard);
  std::optional<Size> size_in(const std::vector<Node>& nodes, Ref number) const;
  void take_size_guards();
  void describe_sizes(const TraceResult& result, ProgramRequest& wanted, ProgramNumbers& numbers);
  void guard_sizes_of_program(TraceResult& result);
  Ref lazy_value(Tracked& dict, PyObject* key);  // 0: it is none
  void settle_elements(Tracked& container);
  void append_lazy(Tracked& list, Ref number);
  void put_lazy(Tracked& dict, PyObject* key, Ref number);  // 0: something else
  bool keeps_values_apart(PyObject* dict, Value key) const;
  bool is_passing(PyObject* object) const;
  Operand operand(Value value);
  std::vector<Operand> operands(std::span<const Value> values, bool lazy);
  bool settle_around_transient(std::span<const Value> values);
  void guard(Ref ref, uint16_t bits, bool truth = false);
  bool is_path(Ref ref) const;
  bool is_change(const Step& step, Ref nodes) const;
  void use_outside(Value value);
  void use_elements(Value value);
  void note_dict_change(Tracked& dict, Value key, Ref ref);
  void note_field_change(Tracked& object, PyObject* name, Ref ref);
  bool describe(PyObject* iterator, Remade& how, std::vector<Object>& held) const;
  bool describe_argument(PyObject* argument, Remade& how, std::vector<Object>& held) const;
  Ref remake(const Remade& how);
  Position position() const;
  std::optional<TraceResult> finish(Exit exit, const Position& position, const Request& request);
  void drop_unneeded_steps(TraceResult& result) const;
  void add_distinctness(TraceResult& result) const;
  bool needs_raised_exception(const Exit& exit) const;
  bool make_program(TraceResult& result, const Position& position, const Request& request);

  std::vector<Node> nodes_;
  Requirements required_;
  std::vector<Step> steps_;
  Ambient ambient_;
  TrackedObjects objects_;
  FlatIndex<PathKey, PathHash> paths_;  // to refs
  std::vector<Object> held_;
  std::vector<Ref> slot_refs_;
  std::vector<Ref> born_tensors_;  // by value of the log; 0: it is none
  std::vector<PyObject*> transients_;
  std::vector<Ref> dropped_;  // objects from outside that the program has dropped
  // Tuples and such that are constants, with a path to them.
  std::unordered_map<PyObject*, Ref> compounds_;
  std::vector<Ref> tensor_paths_;            // nodes of tensors from outside
  size_t lazy_elements_ = 0;                 // that there have been
  std::unordered_set<Ref> changed_numbers_;  // paths of numbers from which others were stored
  Checkpoint checkpoint_;
  int use_depth_ = 0;
};

}  // namespace smelt::bytecode
