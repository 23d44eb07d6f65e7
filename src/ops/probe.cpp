#include "ops/probe.h"

namespace smelt {
namespace {

Indices each_place(const Sizes& sizes) {
  Indices at;
  for (size_t dim = 0; dim < sizes.size(); ++dim)
    at.push_back(sizes[dim].is(1) ? Index(0) : Index::dim(static_cast<int>(dim)));
  return at;
}

}  // namespace

Probe::Probe(const Graph& graph, const Node& node, loops::Builder& builder)
    : ElementQuery(graph, node, each_place(builder.kernel().outer), builder) {
  builder.begin_stage(false);
}

Expr Probe::load(ValueId value, const Indices& at) {
  const TensorType& type = graph().type(value);
  const int32_t buffer = builder().add_buffer(type.dtype, loops::Buffer::Kind::input, 1);
  return {&builder(), builder().load(buffer, loops::linear(at, type.strides))};
}

}  // namespace smelt
