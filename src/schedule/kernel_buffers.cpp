#include "schedule/kernel_buffers.h"

#include <algorithm>

#include "graph/number_parameters.h"

namespace smelt {
namespace {

// One more than the highest place: of a view's root as far as is known.
Size elements_of(const TensorType& type) {
  Size last = 0;
  for (int d = 0; d < type.rank(); ++d) last = last + (type.sizes[d] - 1) * type.strides[d];
  return last + 1;
}

}  // namespace

Expr KernelBuffers::load(ValueId value, const Indices& at) {
  const ValueId root = roles_.root[value];
  if (numbers::is_parameter(graph_, root)) return param(root);
  const TensorType& type = graph_.type(value);
  const Index index =
      loops::linear(at, type.strides) + Index(type.offset - graph_.type(root).offset);
  return {&builder_, builder_.load(of(root, loops::Buffer::Kind::input), index)};
}

Expr KernelBuffers::param(ValueId number) {
  const auto found = std::ranges::find(made_.params, number);
  const auto slot = static_cast<int32_t>(found - made_.params.begin());
  if (found == made_.params.end()) made_.params.push_back(number);
  return {&builder_, builder_.param(slot, graph_.type(number).dtype)};
}

int32_t KernelBuffers::of(ValueId value, loops::Buffer::Kind kind) {
  const auto found = numbers_.find(value);
  if (found != numbers_.end()) return found->second;
  const TensorType& type = graph_.type(value);
  const int32_t made = builder_.add_buffer(type.dtype, kind, elements_of(type));
  made_.buffers.push_back(value);
  made_.bases.push_back(-1);
  numbers_.emplace(value, made);
  return made;
}

int32_t KernelBuffers::updated(ValueId value, ValueId base) {
  const int32_t made = of(value, loops::Buffer::Kind::updated);
  made_.bases[made] = base;
  return made;
}

int32_t KernelBuffers::scratch(DType dtype, const Size& elements) {
  made_.buffers.push_back(-1);
  made_.bases.push_back(-1);
  return builder_.add_buffer(dtype, loops::Buffer::Kind::scratch, elements);
}

void KernelBuffers::store(ValueId value, const Indices& at, Expr element) {
  const TensorType& type = graph_.type(value);
  builder_.store(of(value, loops::Buffer::Kind::output), loops::linear(at, type.strides),
                 element.to(type.dtype).value);
}

std::string kernel_name(const Graph& graph, const std::vector<NodeId>& nodes) {
  std::string text;
  for (size_t i = 0; i < nodes.size() && i < 4; ++i) {
    std::string op = graph.nodes[nodes[i]].op.str();
    op = op.substr(op.find("::") + 2);
    text += (i ? "_" : "") + op.substr(0, op.find('.'));
  }
  return text;
}

}  // namespace smelt
