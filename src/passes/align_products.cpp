// Large products of half precision on CUDA, with rows that begin at multiples of 16 bytes. The
// library's fast kernels copy such rows only: a vocabulary of 50257 makes a product and both of its
// gradients several times slower than one of 50264.
//
// - Of a result with such rows the matrix is padded: the product has a few more columns, and its
//   readers see a part of it.
// - An operand that a kernel computes is written with rows further apart; another one is copied, if
//   the product reads each element often enough.
// - Where such rows are what is added up, the last few products, fewer than 16 bytes hold, are added
//   by a kernel.
//
// Stands behind decompose: which nodes kernels compute is known then.

#include <algorithm>

#include "ops/meaning.h"
#include "ops/rules/layout.h"
#include "passes/passes.h"
#include "passes/rewriting/layout_twins.h"

namespace smelt {
namespace {

const OpName kMm("aten::mm");
const OpName kT("aten::t");

constexpr int64_t kBytes = 16;
constexpr int64_t kLarge = int64_t{1} << 30;  // multiplications
constexpr int64_t kManyRows = 256;            // beside which the copy of a matrix is little

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

// Elements that a row of so many lacks to a multiple of 16 bytes.
int64_t missing(const Size& length, DType dtype) {
  const int64_t each = kBytes / bytes_of(dtype);
  return (each - length.known() % each) % each;
}

// Rows one behind the other.
bool is_row_major_matrix(const TensorType& type) {
  return type.rank() == 2 && all_known(type.sizes) &&
         type.strides == contiguous_strides(type.sizes);
}

class Alignment {
 public:
  Alignment(Graph& graph, const PassOptions& options)
      : graph_(graph), options_(options), writer_(graph), twins_(graph, writer_) {}

  // False: there is nothing to do, or it can't be done; the graph is of no use then.
  bool run() {
    find_operands();
    for (const Input& input : graph_.inputs)
      if (spread_[input.value]) spread(input.value);
    std::vector<Node> nodes = std::move(graph_.nodes);
    for (Node& node : nodes) {
      twins_.apply(node);
      const std::vector<ValueId> results = node.results;
      if (!pad(node) && !cut(node)) twins_.add(std::move(node));
      for (const ValueId result : results)
        if (result >= 0 && static_cast<size_t>(result) < spread_.size() && spread_[result])
          spread(result);
    }
    twins_.finish();
    return changed_ && twins_.good();
  }

 private:
  const TensorType& type(const Arg& arg) const { return graph_.type(arg.get<Ref>().id); }

  bool is_large_product(const Node& node) const {
    if (node.op != kMm || node.results[0] < 0) return false;
    const TensorType &a = type(node.args[0]), &b = type(node.args[1]);
    return a.device.is_cuda() && is_half(a.dtype) && all_known(a.sizes) && all_known(b.sizes) &&
           a.sizes[0].known() * a.sizes[1].known() * b.sizes[1].known() >= kLarge;
  }

  // By a kernel, or a view of what one computes.
  bool is_computed(ValueId value) const {
    const NodeId maker = graph_.values[value].node;
    if (maker >= 0 && graph_.nodes[maker].traits.view && graph_.nodes[maker].traits.is_pure())
      return graph_.nodes[maker].args[0].is<Ref>() &&
             is_computed(graph_.nodes[maker].args[0].get<Ref>().id);
    if (maker < 0 || !options_.has_kernels(graph_.type(value).device)) return false;
    const Node& node = graph_.nodes[maker];
    const Meaning* meaning = find_meaning(node.op);
    return node.traits.is_pure() && !node.traits.view && meaning && meaning->element &&
           can_lower(graph_, node);
  }

  // Does the result of a large product get more columns, and the matrix with it?
  bool is_padded(const Node& node) const {
    const TensorType& made = graph_.type(node.results[0]);
    return is_row_major_matrix(made) && missing(made.sizes[1], made.dtype) > 0 &&
           made.sizes[0].known() >= kManyRows;
  }

  // The operands of large products that have rows which are not aligned, and get others.
  void find_operands() {
    spread_.resize(graph_.values.size());
    for (const Node& node : graph_.nodes) {
      if (!is_large_product(node)) continue;
      for (const size_t i : {0, 1}) {
        ValueId value = node.args[i].get<Ref>().id;
        if (const NodeId maker = graph_.values[value].node;
            maker >= 0 && graph_.nodes[maker].op == kT)
          value = graph_.nodes[maker].args[0].get<Ref>().id;
        const TensorType& seen = graph_.type(value);
        const int64_t uses =
            i == 0 ? type(node.args[1]).sizes[1].known() : type(node.args[0]).sizes[0].known();
        if (is_row_major_matrix(seen) && missing(seen.sizes[1], seen.dtype) > 0 &&
            ((uses >= kManyRows && !(i == 1 && is_padded(node))) || is_computed(value)))
          spread_[value] = true;
      }
    }
  }

  // Zeros of which a kernel reads nothing but the type, and what is copied in their place.
  void spread(ValueId value) {
    value = twins_.written(value);
    const TensorType like = graph_.type(value);
    const Size width = like.sizes[1] + missing(like.sizes[1], like.dtype);
    const ValueId zeros = writer_.call("aten::zeros", {ArgList{Arg(like.sizes[0]), Arg(width)},
                                                       like.dtype, None{}, like.device, false});
    if (zeros < 0) return;
    const ValueId part = first_columns(zeros, like.sizes[1]);
    const ValueId copy =
        part < 0 ? -1 : writer_.call("aten::copy", {Ref{part}, Ref{twins_.at_hand(value)}, false});
    if (copy < 0) return;
    twins_.put(value, copy);
    changed_ = true;
  }

  ValueId first_columns(ValueId value, const Size& count) {
    return writer_.call("aten::slice.Tensor", {Ref{value}, Size(1), Size(0), count, Size(1)},
                        /*is_view=*/true);
  }

  // A product with more columns in the place of this one.
  bool pad(const Node& node) {
    if (!is_large_product(node) || !is_padded(node)) return false;
    const TensorType made = graph_.type(node.results[0]);
    const TensorType matrix = type(node.args[1]);
    const int64_t more = missing(made.sizes[1], made.dtype);
    const bool transposed = matrix.strides[0].is(1);
    Arg rows = node.args[1];
    if (transposed) {
      const ValueId turned = writer_.call("aten::t", {rows}, /*is_view=*/true);
      if (turned < 0) return false;
      rows = Ref{turned};
    }
    const ArgList amounts = transposed
                                ? ArgList{Arg(Size(0)), Arg(Size(0)), Arg(Size(0)), Arg(Size(more))}
                                : ArgList{Arg(Size(0)), Arg(Size(more))};
    ValueId padded = writer_.call("aten::constant_pad_nd", {rows, amounts, Size(0)});
    if (padded >= 0 && transposed) padded = writer_.call("aten::t", {Ref{padded}}, true);
    if (padded < 0) return false;
    const Arg left = Ref{twins_.at_hand(node.args[0].get<Ref>().id)};
    const ValueId product = writer_.call("aten::mm", {left, Ref{padded}});
    const ValueId part = product < 0 ? -1 : first_columns(product, made.sizes[1]);
    if (part < 0) return false;
    twins_.put(node.results[0], part);
    changed_ = true;
    return true;
  }

  ValueId part_of(const Arg& from, int64_t dim, const Size& begin, const Size& end) {
    return writer_.call("aten::slice.Tensor", {from, Size(dim), begin, end, Size(1)},
                        /*is_view=*/true);
  }
  ValueId in_f32(ValueId value) {
    return writer_.call("aten::_to_copy",
                        {Ref{value}, DType::f32, None{}, None{}, None{}, false, None{}});
  }

  // Of f32: `columns` columns times as many rows.
  ValueId few_products(ValueId a, ValueId b, int64_t columns) {
    if (columns == 1) return writer_.call("aten::mul.Tensor", {Ref{a}, Ref{b}});
    const ValueId left = writer_.call("aten::unsqueeze", {Ref{a}, Size(2)}, /*is_view=*/true);
    const ValueId right = writer_.call("aten::unsqueeze", {Ref{b}, Size(0)}, /*is_view=*/true);
    const ValueId products = writer_.call("aten::mul.Tensor", {Ref{left}, Ref{right}});
    return writer_.call("aten::sum.dim_IntList",
                        {Ref{products}, ArgList{Arg(Size(1))}, false, None{}});
  }

  // Two products in the place of this one, the second of few columns by few rows.
  bool cut(const Node& node) {
    if (!is_large_product(node)) return false;
    const Arg a = Ref{twins_.at_hand(node.args[0].get<Ref>().id)};
    const Arg b = Ref{twins_.at_hand(node.args[1].get<Ref>().id)};
    const TensorType left = type(a), right = type(b), made = graph_.type(node.results[0]);
    const Size depth = left.sizes[1];
    const int64_t each = kBytes / bytes_of(made.dtype), rest = depth.known() % each;
    const auto is_aligned = [&](const Size& stride) {
      return stride.is_known() && stride.known() % each == 0;
    };
    const bool along = (left.strides[1].is(1) && is_aligned(left.strides[0])) ||
                       (right.strides[0].is(1) && is_aligned(right.strides[1]));
    if (rest == 0 || !along || !is_row_major_matrix(made) || !options_.has_kernels(made.device))
      return false;
    const NodeWriter::Mark mark = writer_.mark();
    const Size most = depth - rest;
    const ValueId a1 = part_of(a, 1, 0, most), b1 = part_of(b, 0, 0, most);
    const ValueId a2 = part_of(a, 1, most, depth), b2 = part_of(b, 0, most, depth);
    ValueId sum = -1;
    if (a1 >= 0 && b1 >= 0 && a2 >= 0 && b2 >= 0) {
      const ValueId first = writer_.call("aten::mm", {Ref{a1}, Ref{b1}});
      const ValueId left_f32 = in_f32(a2), right_f32 = in_f32(b2);
      const ValueId second = few_products(left_f32, right_f32, rest);
      sum = writer_.call("aten::add.Tensor", {Ref{in_f32(first)}, Ref{second}, Size(1)});
      sum = writer_.call("aten::_to_copy",
                         {Ref{sum}, made.dtype, None{}, None{}, None{}, false, None{}});
    }
    if (sum < 0 || !(graph_.type(sum) == made)) {
      writer_.forget_since(mark);
      return false;
    }
    twins_.put(node.results[0], sum);
    changed_ = true;
    return true;
  }

  Graph& graph_;
  const PassOptions& options_;
  NodeWriter writer_;
  LayoutTwins twins_;
  std::vector<bool> spread_;  // by value
  bool changed_ = false;
};

}  // namespace

bool align_products(Graph& graph, const PassOptions& options) {
  if (!options.has_kernels ||
      !std::ranges::any_of(graph.nodes, [](const Node& node) { return node.op == kMm; }))
    return false;
  Graph draft = graph;
  if (!Alignment(draft, options).run()) return false;
  graph = std::move(draft);
  return true;
}

}  // namespace smelt
