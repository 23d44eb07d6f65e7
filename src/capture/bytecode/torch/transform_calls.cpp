// Function transforms: torch.func, and vmap. Their Python code is followed as any other. What they
// ask of C opens and closes levels, and wraps and unwraps tensors: each level takes an op apart and
// asks for others on what is in its tensors, until there are plain tensors, and those ops are in
// the log. So a cached call knows nothing of levels: calls of these functions are no steps.
//
// A wrapped tensor can't be made again, and no segment ends while one is about or a level is open.
// C code computes with the sizes of what it unwraps, so no size varies in a graph with a transform.
#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "capture/bytecode/torch/torch_calls.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {
namespace {

using Set = std::unordered_set<std::string_view>;

// Of torch._C._functorch.
const Set kOpen{"_vmap_increment_nesting", "_grad_increment_nesting", "_jvp_increment_nesting"};
const Set kClose{"_vmap_decrement_nesting", "_grad_decrement_nesting", "_jvp_decrement_nesting"};
const Set kInside{"_add_batch_dim",
                  "_remove_batch_dim",
                  "_unwrap_batched",
                  "_wrap_for_grad",
                  "_unwrap_for_grad",
                  "unwrap_if_dead",
                  "is_batchedtensor",
                  "is_gradtrackingtensor",
                  "is_functorch_wrapped_tensor",
                  "is_legacy_batchedtensor",
                  "maybe_get_bdim",
                  "maybe_get_level",
                  "maybe_current_level",
                  "get_inplace_requires_grad_allowed",
                  "set_inplace_requires_grad_allowed"};
// Of torch._C, for jvp().
const Set kForwardMode{"_enter_dual_level", "_exit_dual_level", "_set_fwd_grad_enabled",
                       "_is_fwd_grad_enabled"};

// What a level computes with numbers of sizes stands in its ops as it is now.
void fix_sizes(Trace& trace) {
  if (trace.sizes.any()) trace.pin_sizes("a function transform (torch.func)");
  if (trace.active()) trace.log().fix_sizes();
}

bool is_of_module(PyObject* callee, const char* module) {
  PyObject* found = reinterpret_cast<PyCFunctionObject*>(callee)->m_module;
  return found != nullptr && PyUnicode_Check(found) &&
         PyUnicode_CompareWithASCIIString(found, module) == 0;
}

// The call is made for its results, which are known or wrapped.
Result call_level(Trace& trace, Value callee, std::span<const Value> arguments,
                  PyObject* keywords) {
  for (const Value& argument : arguments) trace.use(argument);
  PyObject* result;
  {
    const Unfollowed unfollowed(&trace);
    result = call_plainly(callee.object, arguments, keywords);
  }
  if (result == nullptr) trace.stop(BreakReason::raised, "a function transform");
  trace.check_log();
  return {result, result == nullptr ? 0 : trace.adopt(result)};
}

// How PyTorch's engine is told that nobody else compiles its passes. That it was told so before is
// what its callers ask, so there is nothing to do again.
bool call_compiled_autograd(Trace& trace, Value callee, std::span<const Value> arguments,
                            PyObject* keywords, Result* result) {
  if (name_in_c(callee.object) != "set_autograd_compiler" || arguments.empty() ||
      arguments[0].object != Py_None)
    return false;
  *result = call_level(trace, callee, arguments, keywords);
  if (result->object != nullptr && PyTuple_CheckExact(result->object) &&
      PyTuple_GET_SIZE(result->object) > 0 && PyTuple_GET_ITEM(result->object, 0) != Py_None)
    trace.stop(BreakReason::transform, "under compiled autograd");
  return true;
}

bool holds_wrapped(PyObject* object, int depth = 0) {
  constexpr int kDepth = 3;
  if (tensors().is_wrapped(object)) return true;
  if (depth == kDepth || !(PyTuple_Check(object) || PyList_Check(object))) return false;
  for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i)
    if (holds_wrapped(
            PyTuple_Check(object) ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i),
            depth + 1))
      return true;
  return false;
}

// What a pass does while it runs is in the log as it comes, as long as the pass is one of a
// transform.
class FollowedPass {
 public:
  explicit FollowedPass(Trace& trace) : trace_(trace) { trace_.log().follow_pass(true); }
  ~FollowedPass() { trace_.log().follow_pass(false); }
  FollowedPass(const FollowedPass&) = delete;
  FollowedPass& operator=(const FollowedPass&) = delete;

 private:
  Trace& trace_;
};

}  // namespace

bool is_under_transform(const Trace& trace) { return trace.state.transforms > 0; }

bool call_transform(Trace& trace, Value callee, std::span<const Value> arguments,
                    PyObject* keywords, Result* result) {
  if (!PyCFunction_Check(callee.object)) return false;
  const std::string_view name = name_in_c(callee.object);
  if (call_compiled_autograd(trace, callee, arguments, keywords, result)) return true;
  if (is_under_transform(trace) && kForwardMode.contains(name)) {
    *result = call_level(trace, callee, arguments, keywords);
    if (!trace.active()) return true;
    trace.state.transforms += name == "_enter_dual_level" ? 1 : name == "_exit_dual_level" ? -1 : 0;
    if (name == "_set_fwd_grad_enabled")
      trace.state.forbids_forward_mode = arguments[0].object == Py_False;
    return true;
  }
  if (name == "_func_increment_nesting" && is_of_module(callee.object, "torch._C._functorch"))
    trace.stop(BreakReason::transform, "torch.func.functionalize");
  const bool opens = kOpen.contains(name), closes = kClose.contains(name);
  if ((!opens && !closes && !kInside.contains(name)) ||
      !is_of_module(callee.object, "torch._C._functorch"))
    return false;
  // Otherwise it is by hand, and may not be undone.
  if (closes && !is_under_transform(trace)) return false;
  if (opens) fix_sizes(trace);
  *result = call_level(trace, callee, arguments, keywords);
  if (trace.active()) trace.state.transforms += opens ? 1 : closes ? -1 : 0;
  return true;
}

bool is_transformed(const Trace& trace, std::span<const Value> arguments) {
  return is_under_transform(trace) ||
         std::ranges::any_of(arguments, [](const Value& v) { return holds_wrapped(v.object); });
}

Result call_transformed_pass(Trace& trace, Value function, std::span<const Value> arguments,
                             PyObject* keywords) {
  for (const Value& argument : arguments) trace.use(argument);
  if (trace.active() && !tensors().passes_on_this_thread(arguments[0].object))
    trace.stop(BreakReason::transform, "a backward pass on another device than the CPU");
  PyObject* result;
  {
    const FollowedPass pass(trace);
    const Unfollowed unfollowed(&trace);
    result = call_plainly(function.object, arguments, keywords);
  }
  if (result == nullptr) trace.stop(BreakReason::raised, "a backward pass");
  trace.check_log();
  return {result, result == nullptr ? 0 : trace.adopt(result)};
}

Result call_on_wrapped(Trace& trace, Value callee, std::span<const Value> arguments,
                       PyObject* keywords) {
  return call_level(trace, callee, arguments, keywords);
}

}  // namespace smelt::bytecode
