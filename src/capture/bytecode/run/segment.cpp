#include "capture/bytecode/run/segment.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "capture/bytecode/cpython/same_value.h"
#include "capture/bytecode/guards/guard_instructions.h"
#include "capture/bytecode/nodes/lazy_elements.h"
#include "capture/bytecode/nodes/paths.h"
#include "capture/bytecode/nodes/replay.h"

namespace smelt::bytecode {
namespace {

// The registers of one call: owned references, nullptr where there is none yet.
class Registers {
 public:
  explicit Registers(size_t size) : size_(size), objects_(size) {
    std::fill_n(objects_.data(), size, nullptr);
  }
  ~Registers() {
    for (size_t i = 0; i < size_; ++i) Py_XDECREF(objects_[i]);
  }
  Registers(const Registers&) = delete;
  Registers& operator=(const Registers&) = delete;

  PyObject** data() { return objects_.data(); }
  PyObject* take(size_t index) { return std::exchange(objects_[index], nullptr); }

 private:
  size_t size_;
  Scratch<256> objects_;
};

int visit_operand(const Operand& operand, visitproc visit, void* arg) {
  Py_VISIT(operand.constant.get());
  return 0;
}

}  // namespace

Segment::Segment(TraceResult result) : result_(std::move(result)), guards_(result_) {
  give_out_registers();
  if (result_.steps.empty() && result_.exit.returns && result_.exit.value.ref != 0) {
    returned_ = register_of_[result_.exit.value.ref];
  }
  result_.nodes = {};
  result_.absent = {};
  result_.lookups = {};
  result_.types = {};
  result_.aliases = {};
  result_.distinct = {};
}

void Segment::give_out_registers() {
  register_of_.assign(result_.nodes.size(), -1);
  const auto give = [&](Ref ref) { register_of_[ref] = static_cast<int32_t>(registers_++); };
  for (const Ref ref : guards_.wanted()) give(ref);
  const auto take = [&](Ref ref) {
    const int32_t index = register_of_[ref];
    SMELT_CHECK(index >= 0, "a program's input has no path");
    inputs_come_first_ &= index == std::ssize(input_registers_);
    input_registers_.push_back(index);
  };
  for (const Ref ref : result_.program_inputs) take(ref);
  for (const Ref ref : result_.program_scalars) take(ref);
  for (const Ref ref : result_.program_outputs) give(ref);
  for (const Step& step : result_.steps) {
    if (step.result != 0) give(step.result);
    most_operands_ = std::max(most_operands_, step.inputs.size());
  }
}

const Reading* Segment::changed_reading() const {
  for (const Reading& reading : result_.readings) {
    const Object now =
        Object::steal(PyObject_Call(reading.function.get(), reading.arguments.get(), nullptr));
    if (!now) PyErr_Clear();
    if (!now || !same_value(now.get(), reading.value.get())) return &reading;
  }
  return nullptr;
}

std::string Segment::state_difference() const {
  if (const Ambient now = tensors().ambient(); now != result_.ambient)
    return tensors().difference(result_.ambient, now);
  const Reading* changed = changed_reading();
  if (changed == nullptr) return {};
  const Object name = Object::steal(PyObject_GetAttrString(changed->function.get(), "__name__"));
  PyErr_Clear();
  return (name ? text_of(name.get()) : "a function") + "() gave " + show(changed->value.get()) +
         ", gives something else";
}

// In the order of run(), but for the guards, which name what the user sees.
std::string Segment::why_not(PyObject* const* slots, size_t count, PyObject* code) const {
  for (size_t i = 0; i < count && i < result_.slots_set.size(); ++i) {
    const bool was_set = static_cast<bool>(result_.slots_set[i]);
    if ((slots[i] != nullptr) != was_set)
      return slot_name(static_cast<int>(i), code) +
             (was_set ? ": had a value, has none" : ": had no value, has one");
  }
  if (!has_same_slots(slots, count)) return "more or fewer values are on the stack";
  std::string reason = guards_.explain(slots, count);
  if (reason.empty()) reason = tensors().difference(result_.ambient, tensors().ambient());
  if (reason.empty()) reason = state_difference();
  return reason;
}

Segment::Outcome Segment::remember() const {
  Outcome outcome = Outcome::value;
  for (const Remembered& known : result_.remembered) {
    Object now = Object::steal(
        PyObject_Call(known.function.get(), known.arguments.get(), known.keywords.get()));
    if (!now) {
      PyErr_Clear();
      return Outcome::miss;
    }
    if (PyList_GET_ITEM(known.holder.get(), 0) == now.get()) continue;
    PyList_SetItem(known.holder.get(), 0, now.release());
    outcome = Outcome::retry;
  }
  return outcome;
}

// Cached functions are asked when everything else holds: for other arguments they might have to
// compute what nobody wants. What one gives anew is looked at as the rest was.
bool Segment::check_guards(PyObject** slots, size_t count, PyObject* function,
                           PyObject** registers) {
  if (!guards_.check(slots, count, registers, function)) return false;
  if (result_.remembered.empty()) return true;
  const Outcome outcome = remember();
  if (outcome != Outcome::retry) return outcome == Outcome::value;
  for (size_t i = 0; i < guards_.wanted().size(); ++i) Py_CLEAR(registers[i]);
  return guards_.check(slots, count, registers, function);
}

bool Segment::holds(PyObject** slots, size_t count, PyObject* function) {
  if (!has_same_slots(slots, count) || tensors().ambient() != result_.ambient) return false;
  Registers registers(registers_);
  return changed_reading() == nullptr && guards_.check(slots, count, registers.data(), function);
}

bool Segment::holds_for_other_sizes(PyObject* const* slots, size_t count) const {
  return has_same_slots(slots, count) && tensors().ambient() == result_.ambient &&
         guards_.holds_for_other_sizes(slots, count);
}

Segment::Outcome Segment::run(PyObject** slots, size_t count, PyObject* function,
                              PyObject** value) {
  if (!has_same_slots(slots, count) || tensors().ambient() != result_.ambient) return Outcome::miss;
  if (changed_reading() != nullptr) return Outcome::miss;
  // Behind the program nothing may throw: what was done can't be done again. So there is room for
  // all that follows, for the objects that the slots have now too.
  Registers registers(registers_ + (result_.exit.returns ? 0 : count));
  Scratch<16> operands(most_operands_);
  if (!check_guards(slots, count, function, registers.data())) return Outcome::miss;
  if (!result_.program_scalars.empty() && !scalars_fit(registers.data())) return Outcome::retry;
  if (result_.handles && is_left_to_python()) return Outcome::retry;
  TensorProgram::Failure failure;
  if (result_.program != nullptr && !run_program(registers.data(), &failure))
    return after_failure(failure, registers.data(), operands.data());
  if (returned_ >= 0) {
    *value = registers.take(static_cast<size_t>(returned_));
    return Outcome::value;
  }
  for (const Step& step : result_.steps) {
    if (!run_step(step, registers.data(), operands.data())) return Outcome::error;
  }
  return leave(slots, count, registers.data(), value);
}

// A variable that has no value yet must have none now: nothing else would notice.
bool Segment::has_same_slots(PyObject* const* slots, size_t count) const {
  if (count != result_.slots_set.size()) return false;
  for (size_t i = 0; i < count; ++i)
    if ((slots[i] != nullptr) != static_cast<bool>(result_.slots_set[i])) return false;
  return true;
}

// An int of more than 64 bits is no number for an op; what that comes to is CPython's business.
bool Segment::scalars_fit(PyObject* const* registers) const {
  return std::ranges::all_of(result_.program_scalars,
                             [&](Ref ref) { return fits_scalar(registers[register_of_[ref]]); });
}

bool Segment::is_left_to_python() const {
  if (result_.program == nullptr) return false;
  return result_.program->is_watched() || (result_.catches && !result_.program->fails_cleanly());
}

// What was done to Python objects before the op that failed is done: the rest of the program has
// not been.
Segment::Outcome Segment::after_failure(const TensorProgram::Failure& failure, PyObject** registers,
                                        PyObject** operands) const {
  if (PyErr_Occurred() == nullptr) return Outcome::mispredicted;
  if (failure.clean) {
    PyErr_Clear();
    return Outcome::retry;
  }
  const SavedError error;
  for (const Step& step : result_.steps) {
    if (step.position > failure.position) break;
    // Who has switched something off for a while has switched it on again when the error has passed
    // him.
    if (result_.handles && step.switches) continue;
    const bool is_there = std::ranges::all_of(step.inputs, [&](const Operand& input) {
      return input.ref == 0 || load(input, registers) != nullptr;
    });
    if (is_there && !run_step(step, registers, operands)) PyErr_Clear();
  }
  return Outcome::error;
}

bool Segment::run_program(PyObject** registers, TensorProgram::Failure* failure) const {
  PyObject** outputs = registers + guards_.wanted().size();
  if (inputs_come_first_) return result_.program->run(registers, outputs, failure);
  Scratch<64> inputs(input_registers_.size());
  for (size_t i = 0; i < input_registers_.size(); ++i) inputs[i] = registers[input_registers_[i]];
  return result_.program->run(inputs.data(), outputs, failure);
}

// Borrowed.
PyObject* Segment::load(const Operand& operand, PyObject* const* registers) const {
  if (operand.ref == 0) return operand.constant.get();
  const int32_t index = register_of_[operand.ref];
  return index >= 0 ? registers[index] : nullptr;
}

bool Segment::run_step(const Step& step, PyObject** registers, PyObject** operands) const {
  for (size_t i = 0; i < step.inputs.size(); ++i) operands[i] = load(step.inputs[i], registers);
  Object result = replay(step, {operands, step.inputs.size()});
  if (!result) return false;
  if (step.result != 0) registers[register_of_[step.result]] = result.release();
  return true;
}

Segment::Outcome Segment::leave(PyObject** slots, size_t count, PyObject** registers,
                                PyObject** value) const {
  if (!result_.exit.returns) {
    set_slots(slots, count, registers);
    return Outcome::resume;
  }
  *value = Py_XNewRef(load(result_.exit.value, registers));
  SMELT_CHECK(*value != nullptr, "a segment returns nothing");
  return Outcome::value;
}

void Segment::set_slots(PyObject** slots, size_t count, PyObject** registers) const {
  const std::vector<Operand>& set = result_.exit.slots;
  // Released with the registers, when the frame is in its new state: that may run the user's code.
  PyObject** old = registers + registers_;
  for (size_t i = 0; i < std::max(count, set.size()); ++i) {
    if (i < count) old[i] = slots[i];
    slots[i] = i < set.size() ? Py_XNewRef(load(set[i], registers)) : nullptr;
  }
}

int Segment::traverse(visitproc visit, void* arg) const {
  Py_VISIT(result_.code.get());
  for (const Remembered& known : result_.remembered) {
    for (const Object* object : {&known.function, &known.arguments, &known.keywords, &known.holder})
      Py_VISIT(object->get());
  }
  for (const Step& step : result_.steps) {
    Py_VISIT(step.names.get());
    for (const Operand& operand : step.inputs) {
      if (const int stop = visit_operand(operand, visit, arg); stop != 0) return stop;
    }
  }
  if (const int stop = visit_operand(result_.exit.value, visit, arg); stop != 0) return stop;
  for (const Operand& operand : result_.exit.slots) {
    if (const int stop = visit_operand(operand, visit, arg); stop != 0) return stop;
  }
  return guards_.traverse(visit, arg);
}

void Segment::clear() {
  // From now on the guards hold for nothing, so that what is dropped here is not missed.
  guards_.clear();
  const auto code = std::exchange(result_.code, Object());
  const auto remembered = std::exchange(result_.remembered, {});
  const auto steps = std::exchange(result_.steps, {});
  const auto slots = std::exchange(result_.exit.slots, {});
  const auto value = std::exchange(result_.exit.value, {});
  const auto program = std::exchange(result_.program, nullptr);
}

}  // namespace smelt::bytecode
