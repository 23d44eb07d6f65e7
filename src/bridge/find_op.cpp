#include "bridge/find_op.h"

#include "base/error.h"

namespace smelt {

c10::OperatorHandle find_op(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string base = name.substr(0, dot);
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  auto handle = c10::Dispatcher::singleton().findSchema({base, overload});
  if (!handle) throw Error("this PyTorch has no op " + name + ", which the program calls");
  return *handle;
}

}  // namespace smelt
