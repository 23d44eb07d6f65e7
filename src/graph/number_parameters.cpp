#include "graph/number_parameters.h"

#include "graph/numbers.h"

namespace smelt::numbers {

bool is_parameter(const Graph& graph, ValueId value) {
  const TensorType& type = graph.type(value);
  const NodeId node = graph.values[value].node;
  const bool is_pythons =
      type.dtype == DType::f64 || type.dtype == DType::i64 || type.dtype == DType::b8;
  return is_number(type) && is_pythons &&
         (node < 0 || is_number_op(graph.nodes[node].op) || graph.nodes[node].op == kDraw);
}

}  // namespace smelt::numbers
