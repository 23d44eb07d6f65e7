// A sum of many elements to few is written as two: first to some rows, then of those. A kernel runs
// the points of its result on all threads and each point on one, and keeps a long row apart from
// what is computed before it; so one sum of a large tensor is one thread's work, and reads what
// could have been computed on the way from memory. The norm of a gradient is such a sum. Stands
// after decompose, which writes them.
//
// Sums of half precision are left as they are: the rows would be rounded.

#include <algorithm>
#include <numeric>

#include "graph/op_name.h"
#include "passes/passes.h"

namespace smelt {
namespace {

const OpName kSum("aten::sum"), kSumDims("aten::sum.dim_IntList");

constexpr int64_t kManyElements = 32 * 1024;  // below, one thread is done before others have begun
constexpr int64_t kEnoughRows = 64;
constexpr int64_t kFewRows = 8;
constexpr int64_t kShortRow = 256;

// The dimensions that a node sums over; empty if it is no sum that could be split.
std::vector<int> summed_dims(const Graph& graph, const Node& node) {
  if (node.op != kSum && node.op != kSumDims) return {};
  const TensorType& type = graph.type(node.args[0].get<Ref>().id);
  const TensorType& result = graph.type(node.results[0]);
  if (!all_known(type.sizes) || !all_known(type.strides) || !type.device.is_cpu() ||
      type.dtype != result.dtype || (type.dtype != DType::f32 && type.dtype != DType::f64))
    return {};
  std::vector<int> dims;
  if (node.op == kSumDims && node.args[1].is<ArgList>())
    for (const Arg& dim : node.args[1].get<ArgList>()) {
      const int64_t at = dim.get<Size>().known();
      dims.push_back(static_cast<int>(at < 0 ? at + type.rank() : at));
    }
  if (dims.empty()) {
    dims.resize(type.rank());
    std::iota(dims.begin(), dims.end(), 0);
  }
  return dims;
}

int64_t elements(const TensorType& type, const std::vector<int>& dims) {
  int64_t count = 1;
  for (const int dim : dims) count *= type.sizes[dim].known();
  return count;
}

// The dimensions to sum over first: those whose elements lie closest together. Empty: not worth it.
std::vector<int> first_dims(const TensorType& type, std::vector<int> dims) {
  const int64_t all = elements(type, dims);
  int64_t rows = 1;  // of the result
  for (int d = 0; d < type.rank(); ++d)
    if (std::ranges::find(dims, d) == dims.end()) rows *= type.sizes[d].known();
  if (all == 0 || rows >= kFewRows || rows * all <= kManyElements) return {};
  std::ranges::stable_sort(
      dims, [&](int a, int b) { return type.strides[a].known() > type.strides[b].known(); });
  while (!dims.empty() && rows < kEnoughRows) {
    rows *= type.sizes[dims.front()].known();
    dims.erase(dims.begin());
  }
  return rows >= kFewRows && elements(type, dims) >= kShortRow ? dims : std::vector<int>();
}

}  // namespace

bool split_reductions(Graph& graph, const PassOptions& options) {
  if (!options.decompose) return false;
  std::vector<Node> nodes;
  for (Node& node : graph.nodes) {
    const std::vector<int> dims = summed_dims(graph, node);
    const std::vector<int> first =
        dims.empty() ? dims : first_dims(graph.type(node.args[0].get<Ref>().id), dims);
    if (!first.empty()) {
      TensorType rows = graph.type(node.args[0].get<Ref>().id);
      ArgList over;
      for (const int dim : first) {
        rows.sizes[dim] = 1;
        over.emplace_back(dim);
      }
      rows.strides = contiguous_strides(rows.sizes);
      rows.offset = 0;
      const auto value = static_cast<ValueId>(graph.values.size());
      graph.values.push_back({.type = std::move(rows)});
      nodes.push_back({kSumDims, {node.args[0], Arg(std::move(over)), true, None{}}, {value}, {}});
      node.args[0] = Ref{value};
    }
    nodes.push_back(std::move(node));
  }
  const bool changed = nodes.size() != graph.nodes.size();
  graph.nodes = std::move(nodes);
  if (changed) graph.keep_nodes(std::vector<bool>(graph.nodes.size(), true));
  return changed;
}

}  // namespace smelt
