// The account of one run through a piece of code. The interpreter executes everything for real and
// tells the trace what it did; the trace keeps for each object where it came from, which conditions
// made the run go this way (guards), which tensor ops there were (the log), and what was done to
// Python objects (steps). That makes a Segment.
//
// Nothing is undone when a trace stops: execution is real. What was recorded since the root frame's
// current instruction began is dropped, and the segment ends in front of that instruction.
//
// What is kept about objects:
//  - atoms (None, int, float, str, ...) are known by value. One that was read from outside has a
//  Ref and
//    no guard as long as nothing depends on it; use() adds the guard. One stored in an object that
//    the trace made is used.
//  - fixed objects (types, functions, modules, dtypes) are known by identity, likewise lazily.
//  - everything else is tracked by identity, in a table from object to Ref: either it existed
//  before
//    (`outside`: a path leads to it) or it was made by a step or tensor op (`born`).
//  - an object that is none of these is unknown: stop().
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/bytecode/node.h"

namespace smelt::bytecode {

// int, float, complex, str, bytes, bool, None, Ellipsis, NotImplemented: immutable, known by value.
// Exact types only.
bool is_atom(PyObject* object);
// Types, functions, builtins, modules, code, dtypes, enum members...: known by identity.
bool is_fixed(PyObject* object);
// An atom, a fixed object, or an exact tuple, frozenset or slice of such.
bool is_constant(PyObject* object);

class Trace {
 public:
  // `slots`: the root frame's slots at the start.
  Trace(PyObject* const* slots, size_t count);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // -- stopping
  bool active() const { return !break_; }
  // Ends the trace in front of the root's current instruction. The first reason counts.
  void stop(BreakReason reason, std::string detail);
  const std::optional<Break>& stopped() const { return break_; }
  // Fills in the user's line for stop(); set by the interpreter.
  std::function<void(Break&)> locate;
  // Asks the log whether the ops since the last call can be repeated, stops if not.
  void check_log(bool thorough = false);

  // The root's state in front of an instruction: where the trace can end. `good`: all live objects
  // can be made again.
  void checkpoint(int offset, int depth, std::span<PyObject* const> slots,
                  std::span<const Ref> refs);

  // -- where objects come from
  // The node of a tracked object; 0 for others (and for what is unknown).
  Ref ref_of(PyObject* object) const;
  bool is_tracked(PyObject* object) const;
  // Made by this trace, tensors included.
  bool is_born(PyObject* object) const;
  // A value with its ref: the tracked object's, else `ref`.
  Value value(PyObject* object, Ref ref = 0) const;
  Ref slot_ref(int index) const;

  // -- reading; each returns the ref of `object`, which was found there. Container and parent must
  // be
  //    constants (ref 0) or known to the trace; stops otherwise.
  Ref read_dict(Value dict, PyObject* key, PyObject* object);
  void read_absent(Value dict, PyObject* key);
  Ref read_item(Value sequence, Py_ssize_t index, PyObject* object);
  Ref read_cell(Value cell, PyObject* object);
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

  // -- computing; all operands atoms. Folded (0) if none of them has a ref.
  Ref scalar(ScalarOp op, int arg, Value a, Value b, PyObject* result);

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
  // All of the list's, set's or deque's contents are guarded now, so that it can be changed and
  // read freely.
  void own(Value container);
  // An object whose elements are known, and which can't be made again: a zip, an iterator over a
  // dict. No segment ends while one is alive.
  void transient(PyObject* object);
  // One of these that nobody but the trace has any more; empty: none. Then the trace does not know
  // it any more.
  Object take_dropped();
  // A list or tuple iterator over `iterated`, which can be made again at whatever position it has
  // then.
  void iterator(PyObject* iterator, Value iterated);
  // A tensor that a C call returned: its ref, if the log knows it; else stops.
  Ref tensor(PyObject* object);
  // Something that C code made just now out of what is known: an atom, a tensor of the log, a
  // tuple, list, dict or set of such. Its ref; stops for anything else. If not more than `holders`
  // have it, a constant is a new one.
  Ref adopt(PyObject* object, int holders = 1);
  // Where a list or tuple iterator that the trace made stands, and over what.
  bool iterated(PyObject* iterator, Value* over, int* position) const;
  // An object that is the same as long as another one is, which is guarded: the model behind a
  // compiled model.
  Ref object_behind(PyObject* object) { return constant_node(object); }
  // Keeps an object alive until the trace ends, so that its address names it.
  void hold(PyObject* object);

  TensorLog& log() { return *log_; }

  // -- the end
  // With a value returned by the root. An error that a back end of the user's raised is left set.
  // Nothing if there is no point in it (no progress was made) or if it can't be done (stopped()
  // then says why).
  struct Request {
    std::string backend;
    int mode = 0;
    PyObject* backend_callable = nullptr;
  };
  std::optional<TraceResult> finish_return(Value value, const Request& request);
  // In front of the checkpoint's instruction.
  std::optional<TraceResult> finish_break(const Request& request);
  int exit_offset() const { return checkpoint_.offset; }

  size_t bytecodes = 0;  // run so far, for statistics and limits
  Object code;           // of the root's frame, for the names of its variables
  std::unordered_map<PyObject*, Value> context_values;  // by ContextVar: what the trace has set

 private:
  struct Tracked {
    Object object;
    Ref ref = 0;
    bool born = false;
    bool known = false;   // own(): contents are guarded or our own
    int64_t length = -1;  // of an outside container when first seen
    Object overlay;       // dict: key -> ref of what was written; of other objects: field -> ref
    Object keys_before;   // dict: tuple of the keys before the first change
    bool cell_written = false;  // cell: its contents have `cell_ref`
    Ref cell_ref = 0;
    bool transient = false;             // can't be made again
    std::optional<LogTrouble> refusal;  // a tensor that the log can't follow
    Value iterated;                     // list or tuple iterator: over this
  };
  // A guard in the order of the run, so that those behind the last checkpoint can be left out.
  struct GuardEntry {
    Ref ref;
    uint16_t bits;
    bool truth;
  };
  struct Position {
    size_t steps = 0, log = 0, guards = 0, absent = 0, lookups = 0, aliases = 0;
  };
  struct Checkpoint {
    int offset = -1;
    int depth = 0;
    Position position;
    std::vector<Value> slots;
    std::vector<Object> held;
    std::vector<int> iterator_at;  // per slot, -1: no iterator
  };
  struct PathKey {
    NodeKind kind;
    Ref parent;
    PyObject* key;
    int index;
    bool operator==(const PathKey&) const = default;
  };
  struct PathHash {
    size_t operator()(const PathKey& key) const;
  };

  Ref add(Node node);
  Ref path(NodeKind kind, Ref parent, PyObject* key, int index, PyObject* object);
  // The node of an object that is the same in every call: a module's dict, a type.
  Ref constant_node(PyObject* object);
  Ref parent_ref(Value parent);
  Ref element_ref(PyObject* object);
  Ref adopt_constant(PyObject* object, int holders);
  Tracked* find(PyObject* object);
  const Tracked* find(PyObject* object) const;
  // Tensors that ops made are known by their value in the log, which does not keep them alive.
  Ref born_tensor(PyObject* object) const;
  Tracked& track(PyObject* object, Ref ref, bool born);
  Operand operand(Value value);
  std::vector<Operand> operands(std::span<const Value> values, bool lazy);
  bool settle_around_transient(std::span<const Value> values);
  void guard(Ref ref, uint16_t bits, bool truth = false);
  bool is_path(Ref ref) const;
  void use_outside(Value value);
  void use_elements(Value value);
  void note_dict_change(Tracked& dict, Value key, Ref ref);
  void note_field_change(Tracked& object, PyObject* name, Ref ref);
  int iterator_position(PyObject* iterator) const;
  Position position() const;

  std::optional<TraceResult> finish(Exit exit, const Position& position, const Request& request);
  void drop_unneeded_steps(TraceResult& result) const;
  void add_distinctness(TraceResult& result) const;
  bool needs_raised_exception(const Exit& exit) const;
  bool make_program(TraceResult& result, const Position& position, const Request& request);

  std::vector<Node> nodes_;
  std::vector<AbsentKey> absent_;
  std::vector<TypeLookup> lookups_;
  std::vector<AliasGuard> aliases_;
  std::vector<GuardEntry> guards_;
  std::vector<Step> steps_;
  Ambient ambient_;
  std::unique_ptr<TensorLog> log_;
  std::optional<Break> break_;
  std::unordered_map<PyObject*, Tracked> objects_;
  std::unordered_map<PathKey, Ref, PathHash> paths_;
  std::vector<Object> held_;
  std::vector<Ref> slot_refs_;
  std::unordered_map<LogValue, Ref> born_tensors_;
  std::vector<PyObject*> transients_;
  // Tuples and such that are constants, with a path to them.
  std::unordered_map<PyObject*, Ref> compounds_;
  std::vector<Ref> tensor_paths_;  // nodes of tensors from outside
  Checkpoint checkpoint_;
  int use_depth_ = 0;
};

}  // namespace smelt::bytecode
