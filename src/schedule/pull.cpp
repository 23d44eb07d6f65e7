#include "schedule/pull.h"

#include "base/error.h"

namespace smelt {
namespace {

class Pull final : public ElementQuery {
 public:
  Pull(const Graph& graph, const Roles& roles, const Node& node, Indices at,
       loops::Builder& builder, const ReadElement& read)
      : ElementQuery(graph, node, std::move(at), builder), roles_(roles), read_(read) {}

  Expr load(ValueId value, const Indices& at) override {
    return pull_value(graph(), roles_, value, at, builder(), read_);
  }

 private:
  const Roles& roles_;
  const ReadElement& read_;
};

}  // namespace

Expr pull_value(const Graph& graph, const Roles& roles, ValueId value, const Indices& at,
                loops::Builder& builder, const ReadElement& read) {
  const NodeId node = graph.values[value].node;
  if (!roles.is_transparent(node)) return read(value, at);
  return pull_node(graph, roles, node, at, builder, read);
}

Expr pull_node(const Graph& graph, const Roles& roles, NodeId node, const Indices& at,
               loops::Builder& builder, const ReadElement& read) {
  Pull query(graph, roles, graph.nodes[node], at, builder, read);
  return element_of(query);
}

UpdatedElement pull_update(const Graph& graph, const Roles& roles, NodeId node, const Indices& at,
                           loops::Builder& builder, const ReadElement& read) {
  Pull query(graph, roles, graph.nodes[node], at, builder, read);
  return roles.meaning[node]->update->write(query);
}

std::vector<Read> reads_of(const Graph& graph, const Roles& roles, NodeId node, const Indices& at,
                           const Sizes& outer, const Sizes& inner) {
  loops::Kernel kernel;
  kernel.outer = outer;
  kernel.inner = inner;
  loops::Builder builder(kernel);
  builder.begin_stage(!inner.empty());
  std::vector<Read> reads;
  const ReadElement read = [&](ValueId value, const Indices& place) {
    reads.push_back({value, place});
    const DType dtype = graph.type(value).dtype;
    const int32_t buffer = builder.add_buffer(dtype, loops::Buffer::Kind::input, 1);
    return Expr{&builder, builder.load(buffer, loops::linear(place, graph.type(value).strides))};
  };
  switch (roles.role[node]) {
    case Role::reduction:
    case Role::scan:
      pull_value(graph, roles, graph.nodes[node].args[0].get<Ref>().id, at, builder, read);
      break;
    case Role::update: pull_update(graph, roles, node, at, builder, read); break;
    default: pull_node(graph, roles, node, at, builder, read);
  }
  return reads;
}

}  // namespace smelt
