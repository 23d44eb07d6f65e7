// Numbers that tensor ops take at run time. A C function of PyTorch's gets a stand-in for such a
// number. What it hands to an op is found there by the log, which puts the number itself in its
// place, and the program of the segment takes the number as an input. What it asks for itself, a
// size, a dimension, a probability, becomes part of the segment by an ordinary guard.
//
// Rule for whoever changes this file: a stand-in is seen by no code but PyTorch's own, and by none
// once the call is over.
#include <algorithm>

#include "capture/bytecode/values/dynamic_tensors.h"
#include "capture/bytecode/values/operations.h"
#include "capture/bytecode/values/sizes.h"

namespace smelt::bytecode {
namespace {

constexpr int kDepth = 3;

bool is_list_or_tuple(PyObject* object) {
  return PyList_CheckExact(object) || is_tuple_or_size(object);
}

PyObject* element(PyObject* sequence, Py_ssize_t i) {
  return PyList_Check(sequence) ? PyList_GET_ITEM(sequence, i) : PyTuple_GET_ITEM(sequence, i);
}

// Objects without a __torch_function__ or other code of the user's that the arguments would be
// shown to.
bool has_no_code(PyObject* object, int depth = 0) {
  if (is_constant(object) || tensors().is_tensor(object)) return true;
  if (depth == kDepth || !is_list_or_tuple(object)) return false;
  for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i)
    if (!has_no_code(element(object, i), depth + 1)) return false;
  return true;
}

// A tensor or several, or nothing: whatever numbers did for them, the log has it.
bool is_of_tensors(PyObject* result, int depth = 0) {
  if (result == Py_None || tensors().is_tensor(result)) return true;
  if (depth == kDepth || !(PyTuple_Check(result) || PyList_Check(result))) return false;
  for (Py_ssize_t i = 0; i < Py_SIZE(result); ++i)
    if (!is_of_tensors(element(result, i), depth + 1)) return false;
  return true;
}

// The arguments of a call with stand-ins among them.
class Disguise {
 public:
  Disguise(Trace& trace, std::span<const Value> arguments)
      : trace_(trace), values_(arguments.begin(), arguments.end()) {
    const bool can =
        std::ranges::all_of(arguments, [](const Value& v) { return has_no_code(v.object); });
    // What isn't lazy comes first: if the trace ends there, nothing is disguised.
    std::vector<size_t> later;
    for (size_t i = 0; i < values_.size(); ++i) {
      if (can && (trace.is_runtime_scalar(values_[i]) || may_hold_scalars(values_[i])))
        later.push_back(i);
      else
        takes_dynamic_ = use_in_op(trace, values_[i]) || takes_dynamic_;
    }
    for (size_t i : later) {
      if (is_list_or_tuple(values_[i].object))
        values_[i].object = disguise_elements(values_[i]);
      else
        values_[i].object = disguise(values_[i]);
    }
  }
  ~Disguise() {
    if (open_) trace_.log().end_stand_ins();
  }
  Disguise(const Disguise&) = delete;
  Disguise& operator=(const Disguise&) = delete;

  bool any() const { return !numbers_.empty(); }
  bool takes_dynamic() const { return takes_dynamic_; }
  std::span<const Value> values() const { return values_; }

  // After the call: what C code asked for is used. How many ops it called.
  size_t end() {
    open_ = false;
    const StandInUse use = trace_.log().end_stand_ins();
    for (const Value& number : numbers_) {
      const bool is_used =
          std::ranges::count(use.looked_at, number.ref) > 0 ||
          std::ranges::count(use.compared, number.ref) > 0 ||
          (std::ranges::count(use.sizes, number.ref) > 0 && !trace_.take_as_size(number.ref));
      if (is_used) trace_.use(number);
    }
    return use.ops;
  }
  void use_all() {
    for (const Value& number : numbers_) trace_.use(number);
  }
  // The number behind a stand-in that came back.
  PyObject* number_behind(PyObject* stand_in) const {
    for (size_t i = 0; i < stand_ins_.size(); ++i)
      if (stand_ins_[i].get() == stand_in) return numbers_[i].object;
    return nullptr;
  }

 private:
  bool may_hold_scalars(Value v) const {
    if (!is_list_or_tuple(v.object) || trace_.value(v.object, v.ref).ref == 0) return false;
    for (Py_ssize_t i = 0; i < Py_SIZE(v.object); ++i)
      if (PyFloat_CheckExact(element(v.object, i)) || PyLong_CheckExact(element(v.object, i)))
        return true;
    return false;
  }

  PyObject* disguise(Value number) {
    number = trace_.value(number.object, number.ref);
    const bool is_size = trace_.active() && trace_.may_be_size(number.ref);
    PyObject* made =
        trace_.active() ? trace_.log().stand_in(number.object, number.ref, is_size) : nullptr;
    if (made == nullptr) {
      trace_.use(number);
      return number.object;
    }
    open_ = true;
    trace_.guard_type(number);  // of which much depends that asks for no value
    numbers_.push_back(number);
    stand_ins_.push_back(Object::steal(made));
    return made;
  }

  PyObject* disguise_elements(Value container) {
    std::vector<Value> elements;
    bool any = false;
    trace_.guard_length(container);
    for (Py_ssize_t i = 0; i < Py_SIZE(container.object); ++i) {
      PyObject* item = element(container.object, i);
      elements.push_back({item, trace_.read_item(container, i, item)});
      any = any || trace_.is_runtime_scalar(elements.back());
    }
    if (!any) {
      trace_.use(container);
      return container.object;
    }
    const bool is_list = PyList_CheckExact(container.object);
    Object copy = Object::steal(is_list ? PyList_New(std::ssize(elements))
                                        : PyTuple_New(std::ssize(elements)));
    for (size_t i = 0; i < elements.size(); ++i) {
      PyObject* item = elements[i].object;
      if (trace_.is_runtime_scalar(elements[i]))
        item = disguise(elements[i]);
      else
        trace_.use(elements[i]);
      if (is_list)
        PyList_SET_ITEM(copy.get(), static_cast<Py_ssize_t>(i), Py_NewRef(item));
      else
        PyTuple_SET_ITEM(copy.get(), static_cast<Py_ssize_t>(i), Py_NewRef(item));
    }
    containers_.push_back(copy);
    return copy.get();
  }

  Trace& trace_;
  std::vector<Value> values_;
  std::vector<Value> numbers_;
  std::vector<Object> stand_ins_;  // of each number
  std::vector<Object> containers_;
  bool open_ = false;
  bool takes_dynamic_ = false;
};

}  // namespace

PyObject* call_on_tensors(Trace& trace, std::span<const Value> arguments,
                          const std::function<PyObject*(std::span<const Value>)>& call) {
  const ArgumentCode code = code_among(trace, arguments);
  Disguise disguise(trace, arguments);
  if (code == ArgumentCode::followed) {
    if (disguise.takes_dynamic()) stop_at_shape(trace);
    const Transparent transparent(&trace, true);
    return call(arguments);
  }
  const Unfollowed unfollowed(&trace);
  const size_t position = trace.log().position();
  // It has not come to an op, or tells more than ops do: it has looked at a shape itself.
  const auto check_shapes = [&](PyObject* made) {
    if (disguise.takes_dynamic() && made != nullptr &&
        (!is_of_tensors(made) || trace.log().position() == position))
      stop_at_shape(trace);
    return made;
  };
  if (!disguise.any() || !trace.active()) return check_shapes(call(arguments));
  PyObject* result = call(disguise.values());
  const size_t ops = disguise.end();
  const bool refused = result == nullptr || result == Py_NotImplemented;
  if (refused && ops == 0) {  // it takes numbers only, or fails with another message
    Py_CLEAR(result);
    PyErr_Clear();
    disguise.use_all();
    return check_shapes(call(arguments));
  }
  check_shapes(result);
  // Why it failed, or what it found out, may be in them.
  if (refused || !is_of_tensors(result)) disguise.use_all();
  if (PyObject* number = result == nullptr ? nullptr : disguise.number_behind(result)) {
    Py_DECREF(result);
    return Py_NewRef(number);
  }
  return result;
}

}  // namespace smelt::bytecode
