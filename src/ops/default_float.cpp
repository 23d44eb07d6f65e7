#include "ops/default_float.h"

#include <algorithm>

namespace smelt {
namespace {

bool is_inexact(DType dtype) { return is_floating(dtype) || is_complex(dtype); }

bool is_inexact_number(const Arg& arg) {
  return arg.is<double>() || arg.is<std::complex<double>>();
}

}  // namespace

bool asks_default_float(const Graph& graph, const Node& node) {
  bool has_tensor = false, has_float = false, has_number = false;
  const auto look = [&](const Arg& arg) {
    has_number |= is_inexact_number(arg);
    has_float |= arg.is<DType>();  // it is said which
    if (!arg.is<Ref>() || arg.get<Ref>().id < 0) return;
    const TensorType& type = graph.type(arg.get<Ref>().id);
    (type.wrapped_number ? has_number : has_float) |= is_inexact(type.dtype);
    has_tensor |= !type.wrapped_number;
  };
  for (const Arg& arg : node.args) {
    look(arg);
    if (arg.is<ArgList>()) std::ranges::for_each(arg.get<ArgList>(), look);
  }
  if (!has_tensor || has_float) return false;
  return has_number || std::ranges::any_of(node.results, [&](ValueId result) {
           return result >= 0 && is_inexact(graph.type(result).dtype);
         });
}

}  // namespace smelt
