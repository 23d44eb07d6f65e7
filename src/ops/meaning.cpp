#include "ops/meaning.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "graph/number_parameters.h"
#include "graph/numbers.h"
#include "ops/decompositions/families.h"
#include "ops/meanings/families.h"
#include "ops/rules/not_literal.h"
#include "ops/rules/promotion.h"

namespace smelt {
namespace {

constexpr int kMaxRank = 16;

std::vector<Meaning> collect() {
  std::vector<Meaning> meanings;
  for (auto family : {arithmetic_meanings,
                      pointwise_meanings,
                      copy_meanings,
                      activation_meanings,
                      activation_gradient_meanings,
                      view_meanings,
                      gather_meanings,
                      scatter_meanings,
                      update_meanings,
                      scan_meanings,
                      pad_meanings,
                      pad_gradient_meanings,
                      search_meanings,
                      unfold_meanings,
                      pool_meanings,
                      max_pool_meanings,
                      adaptive_pool_meanings,
                      interpolate_meanings,
                      interpolate_gradient_meanings,
                      factory_meanings,
                      random_meanings,
                      reduce_meanings,
                      norm_decompositions,
                      batch_norm_decompositions,
                      reduce_decompositions,
                      vector_decompositions,
                      softmax_decompositions,
                      embedding_bag_decompositions,
                      loss_decompositions,
                      class_loss_decompositions,
                      foreach_decompositions,
                      split_decompositions,
                      optimizer_decompositions,
                      product_decompositions}) {
    const std::span<const Meaning> part = family();
    meanings.insert(meanings.end(), part.begin(), part.end());
  }
  return meanings;
}

std::unordered_map<OpName, const Meaning*> index_by_name() {
  std::unordered_map<OpName, const Meaning*> index;
  for (const Meaning& meaning : all_meanings()) {
    const bool first = index.emplace(OpName(meaning.name), &meaning).second;
    SMELT_CHECK(first, "two meanings of " + std::string(meaning.name));
  }
  return index;
}

// A number beside tensors takes part in promotion with its category only.
TensorType wrapped_number(const Arg& number) {
  TensorType type;
  type.wrapped_number = true;
  type.dtype = number.is<bool>() ? DType::b8 : number.is<Size>() ? DType::i64 : DType::f64;
  return type;
}

// The dtype the operands are promoted to. Nothing where torch refuses.
std::optional<DType> common_dtype(const NodeReader& q, const Meaning& meaning) {
  std::vector<TensorType> operands;
  for (size_t i = 0; i < meaning.operands && i < q.size(); ++i) {
    if (q.is_tensor(i)) {
      operands.push_back(q.type(i));
    } else if (q.arg(i).is_number()) {
      operands.push_back(wrapped_number(q.arg(i)));
    }
  }
  if (operands.empty()) return q.result().dtype;
  std::optional<DType> dtype = result_type(operands, q.graph().default_float);
  if (dtype && meaning.floating) dtype = floating_of(*dtype, q.graph().default_float);
  return dtype;
}

bool fits(int64_t number, DType dtype) {
  const auto within = [&](int64_t low, int64_t high) { return number >= low && number <= high; };
  switch (dtype) {
    case DType::u8: return within(0, 255);
    case DType::i8: return within(-128, 127);
    case DType::i16: return within(-32768, 32767);
    case DType::i32: return within(INT32_MIN, INT32_MAX);
    default: return true;
  }
}

Decision check_tensor(const TensorType& type, Device device) {
  if (!takes(kNoComplex, type.dtype))
    return Decision::forbid("no kernels of " + std::string(name_of(type.dtype)));
  if (type.conj || type.neg) return Decision::forbid("a tensor with a lazy bit");
  if (type.rank() > kMaxRank) return Decision::forbid("too many dimensions");
  if (type.device != device) return Decision::forbid("tensors of several devices");
  return Decision::allow();
}

// Are the results after the first unused?
bool only_first_is_used(const Graph& graph, const Node& node) {
  if (std::all_of(node.results.begin() + 1, node.results.end(), [](ValueId v) { return v < 0; }))
    return true;
  const std::vector<int32_t> uses = graph.use_counts();
  return std::all_of(node.results.begin() + 1, node.results.end(),
                     [&](ValueId v) { return v < 0 || uses[v] == 0; });
}

Decision check_literal(const Arg& arg) {
  if (arg.is<std::complex<double>>()) return Decision::forbid("a complex number");
  if (arg.is<Opaque>()) return Decision::forbid("an argument kernels do not know");
  return Decision::allow();
}

// Numbers that are known only when the graph runs stand where the rule reads elements. An integer
// is converted as C++ does it; whether the dtype holds it, the graph checks.
Decision check_unknown(const NodeReader& q, const Meaning& meaning) {
  for (size_t i = 0; i < q.size(); ++i) {
    bool found = false;
    each_ref(q.arg(i), [&](Ref ref) { found |= numbers::is_number(q.graph().type(ref.id)); });
    const bool is_operand = meaning.element && meaning.pattern == Pattern::pointwise &&
                            i < meaning.operands && q.is_tensor(i);
    if (found && !is_operand && (meaning.numbers >> i & 1) == 0)
      return Decision::forbid("it needs the value of a number that changes");
  }
  return Decision::allow();
}

// Numbers among the operands must be values of their common dtype; other integers must be known.
Decision check_numbers(const NodeReader& q, const Meaning& meaning) {
  const std::optional<DType> dtype = common_dtype(q, meaning);
  if (!dtype || !takes(kNoComplex, *dtype)) return Decision::forbid("no common dtype");
  for (size_t i = 0; i < q.size(); ++i) {
    if (!q.arg(i).is<Size>()) continue;
    const Size& number = q.arg(i).get<Size>();
    if (i >= meaning.operands && !number.is_known())
      return Decision::forbid("a number that is not known");
    if (number.is_known() && !is_floating(*dtype) && !fits(number.known(), *dtype))
      return Decision::forbid("a number the dtype does not hold");
  }
  return Decision::allow();
}

// What is asked of every node: one result, tensors and numbers that kernels know.
Decision check_node(const Graph& graph, const Node& node, const Meaning& meaning) {
  if (!node.traits.is_pure()) return Decision::forbid("the node has an effect");
  if (node.results.empty() || node.results[0] < 0) return Decision::forbid("no result");
  if (!only_first_is_used(graph, node)) return Decision::forbid("more than one result is used");
  if (!node.traits.view && !graph.type(node.results[0]).offset.is(0))
    return Decision::forbid("the result is a part of a larger storage");
  const NodeReader q(graph, node);
  const auto is_zero = [](const Size& size) { return size.is(0); };
  if (std::ranges::any_of(q.result().sizes, is_zero)) return Decision::forbid("an empty result");
  const Device device = q.result().device;
  if (Decision made = check_tensor(q.result(), device); !made) return made;
  Decision decision = Decision::allow();
  if (Decision made = check_unknown(q, meaning); !made) return made;
  for (const Arg& arg : node.args) {
    if (Decision made = check_literal(arg); !made) return made;
    each_ref(arg, [&](Ref ref) {
      const TensorType& type = graph.type(ref.id);
      const bool is_parameter = numbers::is_parameter(graph, ref.id);
      if (decision) decision = check_tensor(type, is_parameter ? type.device : device);
    });
  }
  return decision;
}

}  // namespace

const Meaning* find_meaning(OpName op) {
  static const std::unordered_map<OpName, const Meaning*> index = index_by_name();
  const auto found = index.find(op);
  return found == index.end() ? nullptr : found->second;
}

std::span<const Meaning> all_meanings() {
  static const std::vector<Meaning> meanings = collect();
  return meanings;
}

Decision can_lower(const Graph& graph, const Node& node) {
  const Meaning* meaning = find_meaning(node.op);
  if (meaning == nullptr || (!meaning->element && !meaning->reduction && !meaning->scan))
    return Decision::forbid("no meaning");
  if (Decision made = check_node(graph, node, *meaning); !made) return made;
  const NodeReader q(graph, node);
  if (meaning->pattern == Pattern::pointwise && meaning->element) {
    if (Decision made = check_numbers(q, *meaning); !made) return made;
  }
  if (meaning->allows) return with_literals([&] { return meaning->allows(q); });
  return Decision::allow();
}

Decision can_update(const Graph& graph, const Node& node) {
  const Meaning* meaning = find_meaning(node.op);
  if (meaning == nullptr || !meaning->update) return Decision::forbid("no meaning");
  if (Decision made = check_node(graph, node, *meaning); !made) return made;
  const NodeReader q(graph, node);
  return with_literals([&] { return meaning->update->allows(q); });
}

DType compute_dtype_of(const NodeReader& q, const Meaning& meaning) {
  const std::optional<DType> dtype = common_dtype(q, meaning);
  SMELT_CHECK(dtype.has_value(), "no common dtype; can_lower was not asked");
  return accumulate_of(*dtype);
}

Expr element_of(ElementQuery& q) {
  const Meaning* meaning = find_meaning(q.node().op);
  SMELT_CHECK(meaning != nullptr && meaning->element, "no element rule for " + q.node().op.str());
  const DType common = common_dtype(q, *meaning).value_or(q.result().dtype);
  q.set_dtypes(common, accumulate_of(common));
  return meaning->element(q).to(q.result().dtype);
}

}  // namespace smelt
