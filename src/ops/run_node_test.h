// One node as a kernel of its own, run by the interpreter: how meanings are tested.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "loops/kernel.h"

namespace smelt {

// Reads the inputs of the graph, buffers 0, 1, ...; writes the node's result 0 to the last buffer.
loops::Kernel kernel_of(const Graph& graph, const Node& node);
// How many elements a tensor of the type spans in memory, the symbols being their hints.
int64_t span_of(const Graph& graph, const TensorType& type);
// Runs the first node of the graph on the bytes of the inputs; false where a check failed.
bool run_node(const Graph& graph, const std::vector<std::vector<std::byte>>& inputs,
              std::vector<std::byte>& result);

using Numbers = std::vector<double>;
// The node in the line "%1: f32[2] = aten::neg(%0)", whose inputs are of the given types and hold
// the given numbers. Its result, in memory order.
struct InputNumbers {
  std::string type;
  Numbers numbers;
};
Numbers run_line(const std::vector<InputNumbers>& inputs, std::string_view line,
                 std::string_view symbols = "");
Graph graph_of(const std::vector<std::string>& types, std::string_view line,
               std::string_view symbols = "");

}  // namespace smelt
