#include <array>
#include <vector>

#include "capture/bytecode/trace/boundary.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {

PyObject* call_plainly(PyObject* callee, std::span<const Value> arguments, PyObject* keywords) {
  constexpr size_t kFew = 15;
  std::array<PyObject*, kFew + 1> few;
  std::vector<PyObject*> many;
  PyObject** stack = few.data();
  if (arguments.size() > kFew) {
    many.resize(arguments.size() + 1);
    stack = many.data();
  }
  for (size_t i = 0; i < arguments.size(); ++i) stack[i + 1] = arguments[i].object;
  note_act();
  const size_t named = keywords == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(keywords));
  return PyObject_Vectorcall(callee, stack + 1,
                             (arguments.size() - named) | PY_VECTORCALL_ARGUMENTS_OFFSET, keywords);
}

Result call(Trace* trace, Value callee, std::span<const Value> arguments, PyObject* keywords) {
  if (!is_following(trace)) return {call_plainly(callee.object, arguments, keywords), 0};
  return trace->follower->call(*trace, callee, arguments, keywords);
}

}  // namespace smelt::bytecode
