#include "capture/bytecode/account/needed_steps.h"

#include <algorithm>
#include <utility>

#include "capture/bytecode/cpython/known_types.h"

namespace smelt::bytecode {

bool is_made(const Node& node) {
  return node.kind == NodeKind::result || node.kind == NodeKind::tensor;
}

size_t changed_by(const Step& step) {
  if (step.kind != StepKind::call || step.inputs.size() < 2) return 0;
  PyObject* callee = step.inputs[0].constant.get();
  const bool is_method = callee != nullptr && (Py_TYPE(callee) == &PyMethodDescr_Type ||
                                               Py_TYPE(callee) == &PyWrapperDescr_Type);
  return is_method ? 1 : 0;
}

bool is_switch(const Step& step) {
  const auto is_function = [](PyObject* callee) {
    return PyCFunction_Check(callee) || (Py_TYPE(callee) == &PyMethodDescr_Type &&
                                         PyDescr_TYPE(callee) == known_type(KnownType::device));
  };
  return step.kind == StepKind::call && step.inputs[0].ref == 0 &&
         is_function(step.inputs[0].constant.get()) &&
         std::ranges::all_of(step.inputs, [](const Operand& input) { return input.ref == 0; });
}

namespace {

// Marks what is needed, starting from the exit and from changes to objects that existed before. An
// object that is needed needs the step that makes it and all that change it.
class Liveness {
 public:
  Liveness(const std::vector<Node>& nodes, const std::vector<Step>& steps)
      : nodes_(nodes),
        steps_(steps),
        live_(steps.size()),
        seen_(nodes.size()),
        makers_(nodes.size(), kNone),
        last_changers_(nodes.size(), kNone),
        earlier_changers_(steps.size(), kNone) {
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].result != 0) makers_[steps[i].result] = i;
      // What is done to an object's __dict__ is done to the object.
      const bool is_view = steps[i].kind == StepKind::instance_dict;
      if ((steps[i].effect || is_view) && !steps[i].inputs.empty()) {
        const Ref changed = steps[i].inputs[changed_by(steps[i])].ref;
        earlier_changers_[i] = std::exchange(last_changers_[changed], i);
      }
    }
  }

  void run(const Exit& exit) {
    for (size_t i = 0; i < steps_.size(); ++i)
      if (steps_[i].effect && !changes_made_object(steps_[i])) keep(i);
    need(exit.value);
    for (const Operand& slot : exit.slots) need(slot);
    while (!todo_.empty()) {
      const Ref ref = todo_.back();
      todo_.pop_back();
      if (makers_[ref] != kNone) keep(makers_[ref]);
      if (!is_made(nodes_[ref])) continue;
      for (size_t i = last_changers_[ref]; i != kNone; i = earlier_changers_[i]) keep(i);
    }
  }

  std::vector<bool> take() { return std::move(live_); }

 private:
  static constexpr size_t kNone = ~size_t{0};

  bool changes_made_object(const Step& step) const {
    if (step.inputs.empty()) return false;
    const size_t at = changed_by(step);
    const Node& changed = nodes_[step.inputs[at].ref];
    return step.kind == StepKind::call ? at == 1 && changed.kind == NodeKind::result
                                       : is_made(changed);
  }

  void keep(size_t step) {
    if (live_[step]) return;
    live_[step] = true;
    for (const Operand& input : steps_[step].inputs) need(input);
    if (steps_[step].kind == StepKind::instance_dict) need({steps_[step].result, {}});
  }

  void need(const Operand& operand) {
    if (operand.ref == 0 || seen_[operand.ref]) return;
    seen_[operand.ref] = true;
    todo_.push_back(operand.ref);
  }

  const std::vector<Node>& nodes_;
  const std::vector<Step>& steps_;
  std::vector<bool> live_, seen_;
  std::vector<Ref> todo_;
  std::vector<size_t> makers_;            // by ref: the step that makes it
  std::vector<size_t> last_changers_;     // by ref: the last step that changes it
  std::vector<size_t> earlier_changers_;  // by step: the one before it that changes the same object
};

}  // namespace

std::vector<bool> needed_steps(const std::vector<Node>& nodes, const std::vector<Step>& steps,
                               const Exit& exit) {
  Liveness liveness(nodes, steps);
  liveness.run(exit);
  return liveness.take();
}

}  // namespace smelt::bytecode
