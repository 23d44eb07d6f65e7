#include "ops/run_node_test.h"

#include <cstring>

#include "base/error.h"
#include "loops/builder.h"
#include "loops/interpret.h"
#include "ops/meaning.h"

namespace smelt {
namespace {

// Loads from the buffers of the graph's inputs.
class InputQuery : public ElementQuery {
 public:
  using ElementQuery::ElementQuery;
  Expr load(ValueId value, const Indices& at) override {
    SMELT_CHECK(static_cast<size_t>(value) < graph().inputs.size(), "an input is expected");
    SMELT_CHECK(static_cast<int>(at.size()) == graph().type(value).rank(),
                "one index per dimension");
    const Index index = loops::linear(at, graph().type(value).strides);
    return {&builder(), builder().load(value, index)};
  }
};

Size span(const TensorType& type) {
  Size last = 0;
  for (int d = 0; d < type.rank(); ++d) {
    if (type.sizes[d].is(0)) return 0;
    last = last + (type.sizes[d] - 1) * type.strides[d];
  }
  return last + 1;
}

Indices all_dims(size_t count) {
  Indices at;
  for (size_t d = 0; d < count; ++d) at.push_back(Index::dim(static_cast<int32_t>(d)));
  return at;
}

void write_element(const Graph& graph, const Node& node, loops::Kernel& kernel,
                   loops::Builder& builder, int32_t out) {
  const TensorType& type = graph.type(node.results[0]);
  kernel.outer = type.sizes;
  builder.begin_stage(false);
  const Indices at = all_dims(type.sizes.size());
  InputQuery query(graph, node, at, builder);
  builder.store(out, loops::linear(at, type.strides), element_of(query).value);
}

void write_reduction(const Graph& graph, const Node& node, const ReductionForm& form,
                     loops::Kernel& kernel, loops::Builder& builder, int32_t out) {
  const TensorType& self = graph.type(node.args[0].get<Ref>().id);
  const TensorType& type = graph.type(node.results[0]);
  std::vector<bool> reduced(self.sizes.size());
  for (int d : form.dims) reduced[d] = true;
  Indices at(self.sizes.size()), result;
  for (int d = 0; d < self.rank(); ++d) {
    if (reduced[d]) {
      kernel.inner.push_back(self.sizes[d]);
      if (form.keepdim) result.emplace_back(0);
    } else {
      at[d] = Index::dim(static_cast<int32_t>(kernel.outer.size()));
      result.push_back(at[d]);
      kernel.outer.push_back(self.sizes[d]);
    }
  }
  auto inner = static_cast<int32_t>(kernel.outer.size());
  for (int d : form.dims) at[d] = Index::dim(inner++);
  builder.begin_stage(true);
  InputQuery query(graph, node, at, builder);
  const Expr element = query.load(node.args[0].get<Ref>().id, at).to(form.accumulate);
  const Expr value{&builder, builder.reduce(form.reduction, element.value)};
  builder.begin_stage(false);
  builder.store(out, loops::linear(result, type.strides), value.to(type.dtype).value);
}

// A number as an element and back, by a kernel that casts.
std::vector<std::byte> converted(DType from, DType to, const std::vector<std::byte>& bytes,
                                 int64_t count) {
  loops::Kernel kernel;
  kernel.outer = {count};
  loops::Builder builder(kernel);
  const int32_t in = builder.add_buffer(from, loops::Buffer::Kind::input, count);
  const int32_t out = builder.add_buffer(to, loops::Buffer::Kind::output, count);
  builder.begin_stage(false);
  builder.store(out, Index::dim(0), builder.cast(builder.load(in, Index::dim(0)), to));
  std::vector<std::byte> result(count * bytes_of(to));
  void* buffers[] = {const_cast<std::byte*>(bytes.data()), result.data()};
  SMELT_CHECK(loops::interpret(kernel, {buffers, {}, {}}), "a cast failed");
  return result;
}

}  // namespace

int64_t span_of(const Graph& graph, const TensorType& type) {
  return span(type).evaluate(graph.symbols.hints());
}

loops::Kernel kernel_of(const Graph& graph, const Node& node) {
  const Meaning* meaning = find_meaning(node.op);
  SMELT_CHECK(meaning != nullptr, "no meaning of " + node.op.str());
  loops::Kernel kernel;
  kernel.name = "one_node";
  loops::Builder builder(kernel);
  for (const Input& input : graph.inputs) {
    const TensorType& type = graph.type(input.value);
    builder.add_buffer(type.dtype, loops::Buffer::Kind::input, span(type));
  }
  const TensorType& type = graph.type(node.results[0]);
  const int32_t out = builder.add_buffer(type.dtype, loops::Buffer::Kind::output, span(type));
  if (meaning->element) {
    write_element(graph, node, kernel, builder, out);
  } else {
    const ReductionForm form = meaning->reduction(NodeReader(graph, node));
    write_reduction(graph, node, form, kernel, builder, out);
  }
  return kernel;
}

bool run_node(const Graph& graph, const std::vector<std::vector<std::byte>>& inputs,
              std::vector<std::byte>& result) {
  const Node& node = graph.nodes[0];
  const loops::Kernel kernel = kernel_of(graph, node);
  kernel.verify();
  const TensorType& type = graph.type(node.results[0]);
  result.assign(span_of(graph, type) * bytes_of(type.dtype), std::byte{0});
  std::vector<void*> buffers;
  for (const auto& bytes : inputs) buffers.push_back(const_cast<std::byte*>(bytes.data()));
  buffers.push_back(result.data());
  const std::vector<int64_t> hints = graph.symbols.hints();
  std::vector<int64_t> sizes;
  for (const Size& size : loops::size_params(kernel)) sizes.push_back(size.evaluate(hints));
  return loops::interpret(kernel, {buffers, sizes, {}});
}

Graph graph_of(const std::vector<std::string>& types, std::string_view line,
               std::string_view symbols) {
  std::string text = std::string(symbols) + "graph {\n";
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string number = std::to_string(i);
    text += "  input %" + number + ": " + types[i] + " = argument " + number + "\n";
  }
  text += "  " + std::string(line) + "\n  return (%" + std::to_string(types.size()) + ")\n}\n";
  return Graph::parse(text);
}

Numbers run_line(const std::vector<InputNumbers>& inputs, std::string_view line,
                 std::string_view symbols) {
  std::vector<std::string> types;
  for (const InputNumbers& input : inputs) types.push_back(input.type);
  const Graph graph = graph_of(types, line, symbols);
  if (Decision made = can_lower(graph, graph.nodes[0]); !made) throw Error(made.reason());
  std::vector<std::vector<std::byte>> bytes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<std::byte> doubles(inputs[i].numbers.size() * sizeof(double));
    std::memcpy(doubles.data(), inputs[i].numbers.data(), doubles.size());
    const auto count = static_cast<int64_t>(inputs[i].numbers.size());
    SMELT_CHECK(count == span_of(graph, graph.type(i)), "an input of another size");
    bytes.push_back(converted(DType::f64, graph.type(i).dtype, doubles, count));
  }
  std::vector<std::byte> result;
  if (!run_node(graph, bytes, result)) throw Error("a check failed");
  const TensorType& type = graph.type(graph.nodes[0].results[0]);
  const int64_t count = span_of(graph, type);
  const std::vector<std::byte> doubles = converted(type.dtype, DType::f64, result, count);
  Numbers numbers(count);
  std::memcpy(numbers.data(), doubles.data(), doubles.size());
  return numbers;
}

}  // namespace smelt
