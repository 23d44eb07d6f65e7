// Objects that a run makes, and its changes to them and to others: steps, which each cached call does
// again behind the tensor program.
#pragma once

#include <span>
#include <vector>

#include "capture/bytecode/trace/trace_sizes.h"

namespace smelt::bytecode {

class TraceSteps : public TraceSizes {
 public:
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
  // Something that C code made just now out of what is known: an atom, a tensor of the log, a
  // tuple, list, dict or set of such; stops for others. A constant of `holders` at most is new.
  Ref adopt(PyObject* object, int holders = 1);
  // An object whose elements are known, and which can't be made again: a zip, an iterator over a
  // dict. No segment ends while one is alive.
  void transient(PyObject* object);
  bool has_transients() const { return !transients_.empty(); }
  // Something that can't be made again stands in a dict from outside, in the place of what was there:
  // as functional_call() puts tensors into a module for a while.
  bool has_passing_store() const { return !passing_stores_.empty(); }
  bool keeps_elements_apart(PyObject* list) const;  // from outside: single items are its account

  // How far the account is. has_changed(): a step since then changes something that was there
  // before. Of PyTorch's switches the log keeps account itself.
  using Mark = TraceMark;
  Mark mark() const { return {steps_.size(), static_cast<Ref>(nodes_.size())}; }
  bool has_changed(Mark since) const;
  // A change so far that code which runs among the tensor ops would miss in a cached call, since
  // steps come behind them. What a cached function remembers is none, nor is context_values.
  bool has_pending_change() const;

 protected:
  ~TraceSteps() = default;

  Operand operand(Value value);

  std::vector<Step> steps_;
  std::vector<PyObject*> transients_;
  struct PassingStore {
    Object dict, key;
    Object before;  // what a cached call still finds there
  };
  std::vector<PassingStore> passing_stores_;

 private:
  Ref adopt_constant(PyObject* object, int holders);
  std::vector<Operand> operands(std::span<const Value> values, bool lazy);
  // Elements of what is made: numbers stay lazy in tuples, lists and dicts.
  std::vector<Operand> elements(StepKind kind, std::span<const Value> values, LazyElements& lazy);
  void append_lazy(Tracked& list, Ref number);
  void put_lazy(Tracked& dict, PyObject* key, Ref number);  // 0: something else
  void set_lazy(Tracked& list, Py_ssize_t place, Ref number);
  Py_ssize_t place_in_made_list(PyObject* list, Value key) const;
  bool keeps_values_apart(PyObject* dict, Value key) const;
  bool settle_around_transient(std::span<const Value> values);
  bool passes(StepKind kind, std::span<const Value> inputs);
  void note_dict_change(Tracked& dict, Value key, Ref ref);
  void note_field_change(Tracked& object, PyObject* name, Ref ref);
  bool is_change(const Step& step, Ref nodes) const;
};

}  // namespace smelt::bytecode
