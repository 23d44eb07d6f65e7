// Frozen matrices as the library likes them best. A linear layer keeps its weights the other way
// round, [out, in], and multiplies by the transposed view, which the library has to pack first, in
// each call.
//
// x[M, K] @ w[K, N] in f32 or f64: row-major, except
// - of few rows MKL reads the transposed matrix as fast or faster: M = 1 by narrow matrices (times
//   of row-major over transposed, one thread: 1x802816x10 1.35, 1x256x256 0.67), M = 2 and 3 by all
//   but flat ones (2x768x768 1.17, 2x16x1024 0.70);
// - large products (2^26 multiplications) in MKL's own packed format: there rows lie on pages of
//   their own (128x768x3072 row-major 1.11, packed 0.87; 64x4096x1024 1.10, 0.83), and below it
//   row-major is as good or better (8x768x768 0.54, 0.57; 32x128x256 0.7, 0.8).
//
// In bf16 and f16 in oneDNN's blocked format, where that computes with them. bf16: 1x768x768 0.71,
// 4x768x768 0.61, 128x768x768 0.96. PyTorch has a vector product of its own for f16, and narrow
// products are no faster: 1x768x768 1.29, 4x768x768 0.88, 256x4096x10 1.28.

#include <algorithm>

#include "ops/rules/layout.h"
#include "passes/passes.h"
#include "passes/rewriting/frozen_values.h"
#include "passes/rewriting/node_writer.h"

namespace smelt {
namespace {

const OpName kMm("aten::mm");
const OpName kAddmm("aten::addmm");
const OpName kReorderMkl("mkl::_mkl_reorder_linear_weight");
const OpName kMkl("mkl::_mkl_linear");
const OpName kReorderOneDnn("mkldnn::_reorder_linear_weight");
const OpName kOneDnn("mkldnn::_linear_pointwise");

constexpr int64_t kLarge = int64_t{1} << 26;  // multiplications

bool is_narrow_float(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

bool is_transposed(const TensorType& type) {
  const bool is_usual = type.dtype == DType::f32 || type.dtype == DType::f64;
  return (is_usual || is_narrow_float(type.dtype)) && !type.neg && all_known(type.sizes) &&
         type.sizes[0].known() > 1 && type.sizes[1].known() > 1 && type.strides[0].is(1) &&
         !type.strides[1].is(1);
}

class Packer {
 public:
  Packer(Graph& graph, const PassOptions& options)
      : graph_(graph),
        options_(options),
        frozen_(frozen_values(graph, options.frozen)),
        writer_(graph) {}

  bool run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    for (Node& node : nodes) {
      if (node.op == kMm || node.op == kAddmm) changed_ |= improve(node);
      writer_.keep(std::move(node));
    }
    writer_.finish();
    return changed_;
  }

 private:
  // What is multiplied by what, and what is added.
  struct Product {
    Arg rows, matrix, bias;
    int64_t m, k, n;
  };

  const TensorType& type(const Arg& arg) const { return graph_.type(arg.get<Ref>().id); }
  bool has_op(const OpName& a, const OpName& b) const {
    return options_.has_op && options_.has_op(a) && options_.has_op(b);
  }

  bool improve(Node& node) {
    const bool adds = node.op == kAddmm;
    Arg& matrix = node.args[adds ? 2 : 1];
    const Arg& rows = node.args[adds ? 1 : 0];
    if (!is_frozen(frozen_, matrix) || !is_transposed(type(matrix))) return false;
    if (!type(rows).sizes[0].is_known()) return false;
    const Product product{.rows = rows,
                          .matrix = matrix,
                          .bias = adds ? node.args[0] : Arg(),
                          .m = type(rows).sizes[0].known(),
                          .k = type(matrix).sizes[0].known(),
                          .n = type(matrix).sizes[1].known()};
    if (may_pack(node, product) && (is_for_onednn(product) || is_for_mkl(product)))
      return pack(node, product);
    if (is_narrow_float(type(matrix).dtype) || !is_better_row_major(product)) return false;
    const ValueId copy = writer_.call("aten::clone", {matrix, kContiguous});
    if (copy >= 0) matrix = Ref{copy};
    return copy >= 0;
  }

  // The library takes a dense matrix, and a bias per column that is added as it is.
  bool may_pack(const Node& node, const Product& product) const {
    const TensorType& by = type(product.matrix);
    const TensorType& made = graph_.type(node.results[0]);
    if (by.strides[1] != by.sizes[0] || product.m == 0 || !is_row_major(made)) return false;
    if (product.bias.is_none()) return true;
    const TensorType& bias = type(product.bias);
    return node.args[3] == Arg(1) && node.args[4] == Arg(1) && bias.dtype == by.dtype &&
           bias.rank() == 1 && bias.sizes[0] == by.sizes[1] && bias.strides[0].is(1);
  }

  bool is_for_onednn(const Product& product) const {
    const DType dtype = type(product.matrix).dtype;
    if (!is_narrow_float(dtype) || !has_op(kReorderOneDnn, kOneDnn)) return false;
    if (dtype == DType::f16 && (product.m < 4 || product.n < 64)) return false;
    return options_.onednn_takes && options_.onednn_takes(dtype);
  }

  bool is_for_mkl(const Product& product) const {
    return type(product.matrix).dtype == DType::f32 && product.m >= 4 && product.n >= 64 &&
           product.m * product.k * product.n >= kLarge && has_op(kReorderMkl, kMkl);
  }

  static bool is_better_row_major(const Product& product) {
    if (product.m == 1) return product.n >= 32;
    return product.m >= 4 || product.k <= 64;
  }

  // What the matrix, as the layer keeps it, is packed to only the library knows: nobody else may
  // read that.
  bool pack(Node& node, const Product& product) {
    const ValueId weights = writer_.call("aten::t", {product.matrix}, /*is_view=*/true);
    if (weights < 0) return false;
    const bool for_onednn = is_for_onednn(product);
    const OpName& reorder = for_onednn ? kReorderOneDnn : kReorderMkl;
    const ValueId packed =
        writer_.call(reorder.str(), {Ref{weights}, Size(product.m)}, graph_.type(weights));
    node.op = for_onednn ? kOneDnn : kMkl;
    if (for_onednn)
      node.args = {product.rows,        Ref{packed}, product.bias,
                   std::string("none"), ArgList{},   std::string()};
    else
      node.args = {product.rows, Ref{packed}, Ref{weights}, product.bias, Size(product.m)};
    return true;
  }

  Graph& graph_;
  const PassOptions& options_;
  const std::vector<bool> frozen_;
  NodeWriter writer_;
  bool changed_ = false;
};

}  // namespace

bool pack_products(Graph& graph, const PassOptions& options) {
  return !options.frozen.empty() && Packer(graph, options).run();
}

}  // namespace smelt
