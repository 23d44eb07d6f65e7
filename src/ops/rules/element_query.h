// What an element rule is asked: one element of a node's result, as an expression over elements of
// its arguments.
#pragma once

#include "loops/builder.h"
#include "ops/rules/node_reader.h"

namespace smelt {

using loops::Expr;
using loops::Index;
using loops::Indices;

// One question to an element rule: the element of result 0 at `at()`.
class ElementQuery : public NodeReader {
 public:
  ElementQuery(const Graph& graph, const Node& node, Indices at, loops::Builder& builder)
      : NodeReader(graph, node), at_(std::move(at)), builder_(builder) {}
  virtual ~ElementQuery() = default;

  const Indices& at() const { return at_; }  // one per dimension of the result
  loops::Builder& builder() { return builder_; }
  loops::Extents extents() const { return builder_.extents(); }

  // An element of a tensor, of the tensor's dtype.
  virtual Expr load(ValueId value, const Indices& at) = 0;

  // The element of argument i that broadcasts to at(); a number is one of the compute dtype,
  // whether it is known or not.
  Expr operand(size_t i);
  // operand(i) in the dtype the op computes in: result_type of the tensor operands and numbers
  // among `operands`, f16 and bf16 widened to f32, integers to the default float where `floating`.
  // The rule's result is cast to the dtype of the node's result by the caller.
  Expr computed(size_t i);
  // The same, but numbers and 0-dim tensors are rounded to the operands' common dtype first, as
  // other operands always are: x > 0.1 compares a bf16 with the bf16 next to 0.1, while x * 0.1
  // multiplies by the float next to it.
  Expr rounded(size_t i) { return operand(i).to(common_).to(compute_); }
  DType compute_dtype() const { return compute_; }
  void set_compute_dtype(DType dtype) { common_ = compute_ = dtype; }
  void set_dtypes(DType common, DType compute) { common_ = common, compute_ = compute; }
  Expr constant(double number) { return constant(compute_, number); }
  Expr constant(DType dtype, double number);
  Expr constant(DType dtype, int64_t number);
  Expr index_value(const Index& index) { return {&builder_, builder_.index(index)}; }  // i64
  // An integer element as an index into a dimension: negative ones count from the end if `wrap`;
  // out of range fails the kernel.
  Index checked_index(Expr element, const Size& size, bool wrap);

 private:
  Indices at_;
  loops::Builder& builder_;
  DType common_ = DType::f32;  // what the operands are promoted to, before f16 and bf16 are widened
  DType compute_ = DType::f32;
};

}  // namespace smelt
