// What an op computes, in one of five forms:
//   element    one element of the result from elements of the arguments: pointwise ops, views,
//              gathers, concatenations, factories. Such a node can be part of any kernel.
//   reduction  elements of the first argument combined over some of its dimensions.
//   scan       elements of the first argument combined with all before them along a dimension.
//   update     elements written one after the other into a copy of an argument, or into zeros.
//   decompose  the node as other nodes, before kernels are made.
// An op without a meaning, or whose meaning refuses, is called through the dispatcher.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "graph/graph.h"
#include "loops/builder.h"

namespace smelt {

using loops::Expr;
using loops::Index;
using loops::Indices;

// Reads a node's arguments: shared by the queries below.
class NodeReader {
 public:
  NodeReader(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  const Graph& graph() const { return graph_; }
  const Node& node() const { return node_; }
  size_t size() const { return node_.args.size(); }
  const Arg& arg(size_t i) const { return node_.args[i]; }
  bool is_none(size_t i) const { return i >= node_.args.size() || node_.args[i].is_none(); }
  bool is_tensor(size_t i) const { return i < node_.args.size() && node_.args[i].is<Ref>(); }
  ValueId value(size_t i) const { return node_.args[i].get<Ref>().id; }
  const TensorType& type(size_t i) const { return graph_.type(value(i)); }
  std::vector<ValueId> values(size_t i) const;  // of a tensor list
  const TensorType& result(size_t i = 0) const { return graph_.type(node_.results[i]); }
  // Literals. Whether they are there and known is part of can_lower; a check fails otherwise.
  int64_t integer(size_t i) const;
  int64_t integer(size_t i, int64_t if_none) const;
  std::vector<int64_t> integers(size_t i) const;  // an int stands for a list of one; none is empty
  Size size_at(size_t i) const;
  Sizes sizes(size_t i) const;
  bool boolean(size_t i) const;
  bool boolean(size_t i, bool if_none) const;
  double number(size_t i) const;  // int, float or bool
  double number(size_t i, double if_none) const;
  std::string_view text(size_t i) const;

 private:
  const Graph& graph_;
  const Node& node_;
};

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

using ElementRule = Expr (*)(ElementQuery& q);

// A reduction of result(0)'s elements over dimensions of argument 0.
struct ReductionForm {
  loops::Reduction reduction = loops::Reduction::sum;
  std::vector<int> dims;  // reduced, ascending, not negative; all if the op got none
  bool keepdim = false;
  DType accumulate = DType::f32;  // elements are cast to it (any, all: != 0), the result from it
};
using ReductionRule = ReductionForm (*)(const NodeReader& q);

// A scan along dims[0] has the same form; its argument is cast to the result's dtype first.

// What is written over, or combined with, an argument or zeros.
struct UpdateForm {
  Sizes points;                             // one element is written at each, in row-major order
  std::optional<size_t> base;               // the argument that the result begins as; none: zeros
  std::optional<loops::Reduction> combine;  // with what is there; none: in its place
};
struct UpdatedElement {
  Indices place;  // in the result
  Expr element;
};
struct UpdateRule {
  UpdateForm (*form)(const NodeReader& q);
  UpdatedElement (*write)(ElementQuery& q);  // q.at() is a point
  Decision (*allows)(const NodeReader& q);
};

// Writes nodes in the place of one.
class DecomposeQuery : public NodeReader {
 public:
  using NodeReader::NodeReader;
  virtual ~DecomposeQuery() = default;
  // Appends a node of an op that has one result and a shape rule; its type is worked out. Numbers
  // and dtypes are plain Args. args: positional, defaults included.
  virtual ValueId call(std::string_view op, std::vector<Arg> args) = 0;
  virtual const TensorType& type_of(ValueId value) const = 0;
  // `value` stands for result i from now on. It gets the strides the result had; sizes and dtype
  // must be equal.
  virtual void replace(size_t i, ValueId value) = 0;
};
// False: nothing was written, the node stays.
using DecomposeRule = bool (*)(DecomposeQuery& q);

enum class Pattern : uint8_t {
  pointwise,  // reads each argument at the place that broadcasts to the result's
  view,       // the element is one of argument 0, elsewhere: no arithmetic
  gather,     // reads at computed places, or one of several arguments (index, cat, pad)
  factory,    // reads nothing
};

struct Meaning {
  std::string_view name;
  Pattern pattern = Pattern::pointwise;
  ElementRule element = nullptr;
  ReductionRule reduction = nullptr;
  ReductionRule scan = nullptr;
  const UpdateRule* update = nullptr;  // where the element rule, if there is one, refuses
  DecomposeRule decompose = nullptr;
  // May this node be lowered so (dtypes, literals)? Complex tensors, conj/neg bits, unknown numbers
  // and devices of the results are asked before by can_lower().
  Decision (*allows)(const NodeReader& q) = nullptr;
  // Which arguments promote together; the compute dtype is worked out from them. Empty: the
  // tensors and numbers among the first arguments as the rule's family says.
  bool floating = false;  // integers are computed as the default float
  uint8_t operands = 0;   // of a pointwise op: arguments 0 .. operands-1 promote together
  int cost = 1;           // of one element, in cheap instructions: exp is about 15
  // Further arguments (a bit each) that may be numbers known only when the graph runs: the element
  // rule reads them with operand(), rounded() or computed(). Any of the operands may be one.
  uint32_t numbers = 0;
  // Arguments (a bit each) that are tensors of which the type is asked, and no element.
  uint32_t unread = 0;
};

// The meaning of an op, or nullptr.
const Meaning* find_meaning(OpName op);
std::span<const Meaning> all_meanings();

// Can a kernel compute this node? (element, reduction or scan; decompositions are done before)
Decision can_lower(const Graph& graph, const Node& node);
// Can one compute it by its update rule?
Decision can_update(const Graph& graph, const Node& node);
// The dtype a pointwise node computes in.
DType compute_dtype_of(const NodeReader& q, const Meaning& meaning);
// The element of result 0 at q.at(), of the result's dtype: asks the op's element rule.
Expr element_of(ElementQuery& q);

}  // namespace smelt
