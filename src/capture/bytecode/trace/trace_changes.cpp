// Which of the steps so far change what was there before.
#include <algorithm>

#include "capture/bytecode/account/needed_steps.h"
#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/nodes/replay.h"
#include "capture/bytecode/trace/trace_steps.h"

namespace smelt::bytecode {
namespace {

// ContextVar.set(value), reset(token) of a token that the trace has: which of these are open at
// present is known otherwise (StateSeen::context_values).
bool is_of_context(const Step& step, const std::vector<Node>& nodes) {
  constexpr size_t kInputs = 3;  // the method, the variable, the value or token
  PyObject* callee = step.kind == StepKind::call && step.inputs.size() == kInputs
                         ? step.inputs[0].constant.get()
                         : nullptr;
  if (callee == nullptr || Py_TYPE(callee) != &PyMethodDescr_Type ||
      PyDescr_TYPE(callee) != &PyContextVar_Type)
    return false;
  return PyUnicode_CompareWithASCIIString(PyDescr_NAME(callee), "set") == 0 ||
         nodes[step.inputs[2].ref].kind == NodeKind::result;
}

// How deep its own calls are in each other, which PyTorch keeps in the namespaces of its modules.
bool is_of_torch(const Step& step, const std::vector<Node>& nodes) {
  if (step.kind != StepKind::set_item) return false;
  const Operand& target = step.inputs[0];
  PyObject* dict = target.ref == 0          ? target.constant.get()
                   : nodes[target.ref].gone ? nullptr
                                            : nodes[target.ref].object.get();
  return dict != nullptr && PyDict_CheckExact(dict) &&
         (is_of_package(dict, "torch._functorch") || is_of_package(dict, "torch._dynamo") ||
          is_of_package(dict, "torch.autograd"));
}

}  // namespace

// Whether a step changes what was there before the first `nodes` of the account.
bool TraceSteps::is_change(const Step& step, Ref nodes) const {
  if (!step.effect || is_switch(step)) return false;
  const Ref target = step.inputs.empty() ? 0 : step.inputs[changed_by(step)].ref;
  return target < std::max<Ref>(nodes, 1) || !is_made(nodes_[target]);
}

bool TraceSteps::has_changed(TraceMark since) const {
  return active() && std::any_of(steps_.begin() + static_cast<ptrdiff_t>(since.steps), steps_.end(),
                                 [&](const Step& step) { return is_change(step, since.nodes); });
}

bool TraceSteps::has_pending_change() const {
  return std::ranges::any_of(steps_, [&](const Step& step) {
    if (is_of_context(step, nodes_) || is_of_torch(step, nodes_)) return false;
    const bool is_cached = step.kind == StepKind::call && step.inputs[0].ref != 0 &&
                           !nodes_[step.inputs[0].ref].gone &&
                           is_cached_function(nodes_[step.inputs[0].ref].object.get());
    return !is_cached && is_change(step, 0);
  });
}

}  // namespace smelt::bytecode
