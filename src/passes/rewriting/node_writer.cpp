#include "passes/rewriting/node_writer.h"

#include "ops/rows.h"

namespace smelt {

std::vector<std::optional<TensorType>> NodeWriter::types_of(OpName op,
                                                            std::vector<Arg> args) const {
  const OpRow* row = find_row(op);
  if (!row) return {};
  std::vector<TensorType> arguments;
  for (Arg& arg : args) {
    each_ref(arg, [&](Ref& ref) {
      arguments.push_back(graph_.type(ref.id));
      ref.id = static_cast<int32_t>(arguments.size()) - 1;
    });
  }
  SymbolTable symbols = graph_.symbols;
  ShapeQuery query(args, arguments, symbols, graph_.default_float);
  if (!row->shape(query) || symbols.guards().size() != graph_.symbols.guards().size()) return {};
  return query.results;
}

ValueId NodeWriter::call(std::string_view op, std::vector<Arg> args, bool is_view) {
  const std::vector<std::optional<TensorType>> types = types_of(OpName(op), args);
  if (types.size() != 1 || !types[0]) return -1;
  const ValueId value = call(op, std::move(args), *types[0]);
  nodes_.back().traits.view = is_view;
  return value;
}

ValueId NodeWriter::call(std::string_view op, std::vector<Arg> args, TensorType type) {
  const auto value = static_cast<ValueId>(graph_.values.size());
  graph_.values.push_back({.type = std::move(type)});
  keep({OpName(op), std::move(args), {value}, {}});
  return value;
}

void NodeWriter::keep(Node node) {
  maker_.resize(graph_.values.size(), -1);
  for (ValueId result : node.results)
    if (result >= 0) maker_[result] = static_cast<int32_t>(nodes_.size());
  nodes_.push_back(std::move(node));
  dropped_.push_back(false);
}

const Node* NodeWriter::maker(ValueId value) const {
  if (value < 0 || static_cast<size_t>(value) >= maker_.size() || maker_[value] < 0) return nullptr;
  return &nodes_[maker_[value]];
}

void NodeWriter::drop(const Node* node) { dropped_[node - nodes_.data()] = true; }

void NodeWriter::forget_since(Mark mark) {
  nodes_.resize(mark.nodes);
  dropped_.resize(mark.nodes);
  graph_.values.resize(mark.values);
  maker_.resize(std::min(maker_.size(), mark.values));
}

void NodeWriter::finish() {
  graph_.nodes = std::move(nodes_);
  std::vector<bool> keep;
  for (const bool dropped : dropped_) keep.push_back(!dropped);
  graph_.keep_nodes(keep);
}

}  // namespace smelt
