#include "graph/graph.h"

#include "base/error.h"

namespace smelt {
namespace {

// The new number of each value that is still defined: inputs, constants, then results in order.
std::vector<ValueId> dense_numbers(const Graph& graph, int32_t& count) {
  std::vector<ValueId> numbers(graph.values.size(), -1);
  count = 0;
  for (const Input& input : graph.inputs) numbers[input.value] = count++;
  for (const Constant& constant : graph.constants) numbers[constant.value] = count++;
  for (const Node& node : graph.nodes) {
    for (ValueId result : node.results) {
      if (result >= 0) numbers[result] = count++;
    }
  }
  return numbers;
}

void renumber_values(Graph& graph) {
  int32_t count = 0;
  std::vector<ValueId> numbers = dense_numbers(graph, count);
  auto renumber = [&](ValueId& value) {
    if (value < 0) return;
    SMELT_CHECK(numbers[value] >= 0,
                "%" + std::to_string(value) + " is used but its node was dropped");
    value = numbers[value];
  };
  std::vector<Value> values(count);
  for (size_t old = 0; old < numbers.size(); ++old) {
    if (numbers[old] >= 0) values[numbers[old]].type = std::move(graph.values[old].type);
  }
  graph.values = std::move(values);
  for (Input& input : graph.inputs) renumber(input.value);
  for (Constant& constant : graph.constants) renumber(constant.value);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    for (Arg& arg : node.args) each_ref(arg, [&](Ref& ref) { renumber(ref.id); });
    for (size_t j = 0; j < node.results.size(); ++j) {
      renumber(node.results[j]);
      if (node.results[j] < 0) continue;
      graph.values[node.results[j]].node = static_cast<NodeId>(i);
      graph.values[node.results[j]].result = static_cast<int32_t>(j);
    }
  }
  for (ValueId& output : graph.outputs) renumber(output);
}

}  // namespace

ValueId Graph::add_input(TensorType type, Source source, int32_t index, bool requires_grad) {
  ValueId value = static_cast<ValueId>(values.size());
  values.push_back({std::move(type), -1, 0});
  inputs.push_back({value, source, index, requires_grad});
  return value;
}

ValueId Graph::add_constant(TensorType type, std::shared_ptr<const void> data, std::string digest) {
  ValueId value = static_cast<ValueId>(values.size());
  values.push_back({std::move(type), -1, 0});
  constants.push_back({value, std::move(data), std::move(digest)});
  return value;
}

NodeId Graph::add_node(OpName op, std::vector<Arg> args,
                       std::span<const std::optional<TensorType>> types, Traits traits) {
  NodeId id = static_cast<NodeId>(nodes.size());
  Node node{op, std::move(args), {}, traits};
  for (size_t i = 0; i < types.size(); ++i) {
    node.results.push_back(types[i] ? static_cast<ValueId>(values.size()) : -1);
    if (types[i]) values.push_back({*types[i], id, static_cast<int32_t>(i)});
  }
  nodes.push_back(std::move(node));
  return id;
}

void Graph::replace_uses(ValueId from, ValueId to) {
  for (Node& node : nodes) {
    for (Arg& arg : node.args) {
      each_ref(arg, [&](Ref& ref) {
        if (ref.id == from) ref.id = to;
      });
    }
  }
  for (ValueId& output : outputs) {
    if (output == from) output = to;
  }
}

std::vector<int32_t> Graph::use_counts() const {
  std::vector<int32_t> counts(values.size(), 0);
  for (const Node& node : nodes) {
    for (const Arg& arg : node.args) {
      each_ref(arg, [&](Ref ref) {
        if (ref.id >= 0) ++counts[ref.id];
      });
    }
  }
  for (ValueId output : outputs) {
    if (output >= 0) ++counts[output];
  }
  return counts;
}

void Graph::keep_nodes(const std::vector<bool>& keep) {
  SMELT_CHECK(keep.size() == nodes.size(), "keep_nodes needs one answer per node");
  std::vector<Node> kept;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (keep[i]) kept.push_back(std::move(nodes[i]));
  }
  nodes = std::move(kept);
  renumber_values(*this);
}

}  // namespace smelt
