// record_function(): a label in a profile. A cached call leaves it out, also under a profiler: what
// a profile shows is what runs, and the ops behind a label are spread over fused kernels.
#include <string_view>

#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/torch/torch_calls.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {
namespace {

bool is_method_of_label(PyObject* function, std::string_view name) {
  return is_function_of(function, "torch.autograd.profiler",
                        std::string("record_function.").append(name));
}

}  // namespace

bool call_profiler(Trace& trace, Value function, std::span<const Value> arguments, PyObject* names,
                   Result* result) {
  const bool makes = is_method_of_label(function.object, "__init__");
  const bool enters = is_method_of_label(function.object, "__enter__");
  if (!makes && !enters && !is_method_of_label(function.object, "__exit__")) return false;
  const Value self = arguments.empty() ? Value{} : arguments[0];
  if (self.object == nullptr || !trace.is_born(self.object)) return false;
  trace.guard_function(function);
  // It was entered or is about to be: no segment can end while it is alive, as none would enter it.
  if (makes) trace.transient(self.object);
  {
    const Unfollowed unfollowed(&trace, false);
    result->object = call_plainly(function.object, arguments, names);
  }
  if (enters && result->object == self.object) result->ref = self.ref;
  return true;
}

}  // namespace smelt::bytecode
