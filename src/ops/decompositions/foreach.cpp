// Ops on lists: each tensor by the op on one tensor.
#include <unordered_map>

#include "ops/decompositions/families.h"
#include "ops/rules/decompose.h"

namespace smelt {
namespace {

// The op on one tensor takes the items of the lists and the other arguments as they are, then what
// the list form has not.
struct ListOp {
  std::string_view name;
  std::string_view single;
  bool has_alpha = false;  // append alpha = 1
};

constexpr ListOp kListOps[] = {
    {"aten::_foreach_abs", "aten::abs"},
    {"aten::_foreach_add.List", "aten::add.Tensor"},
    {"aten::_foreach_add.Scalar", "aten::add.Tensor", true},
    {"aten::_foreach_add.ScalarList", "aten::add.Tensor", true},
    {"aten::_foreach_add.Tensor", "aten::add.Tensor"},
    {"aten::_foreach_addcdiv.Scalar", "aten::addcdiv"},
    {"aten::_foreach_addcdiv.ScalarList", "aten::addcdiv"},
    {"aten::_foreach_addcmul.Scalar", "aten::addcmul"},
    {"aten::_foreach_addcmul.ScalarList", "aten::addcmul"},
    {"aten::_foreach_ceil", "aten::ceil"},
    {"aten::_foreach_clamp_max.List", "aten::clamp_max.Tensor"},
    {"aten::_foreach_clamp_max.Scalar", "aten::clamp_max"},
    {"aten::_foreach_clamp_max.ScalarList", "aten::clamp_max"},
    {"aten::_foreach_clamp_min.List", "aten::clamp_min.Tensor"},
    {"aten::_foreach_clamp_min.Scalar", "aten::clamp_min"},
    {"aten::_foreach_clamp_min.ScalarList", "aten::clamp_min"},
    {"aten::_foreach_cos", "aten::cos"},
    {"aten::_foreach_div.List", "aten::div.Tensor"},
    {"aten::_foreach_div.Scalar", "aten::div.Tensor"},
    {"aten::_foreach_div.ScalarList", "aten::div.Tensor"},
    {"aten::_foreach_div.Tensor", "aten::div.Tensor"},
    {"aten::_foreach_exp", "aten::exp"},
    {"aten::_foreach_expm1", "aten::expm1"},
    {"aten::_foreach_floor", "aten::floor"},
    {"aten::_foreach_frac", "aten::frac"},
    {"aten::_foreach_lerp.List", "aten::lerp.Tensor"},
    {"aten::_foreach_lerp.Scalar", "aten::lerp.Scalar"},
    {"aten::_foreach_lerp.ScalarList", "aten::lerp.Scalar"},
    {"aten::_foreach_log", "aten::log"},
    {"aten::_foreach_log1p", "aten::log1p"},
    {"aten::_foreach_max", "aten::max"},
    {"aten::_foreach_maximum.List", "aten::maximum"},
    {"aten::_foreach_maximum.Scalar", "aten::clamp_min"},
    {"aten::_foreach_maximum.ScalarList", "aten::clamp_min"},
    {"aten::_foreach_minimum.List", "aten::minimum"},
    {"aten::_foreach_minimum.Scalar", "aten::clamp_max"},
    {"aten::_foreach_minimum.ScalarList", "aten::clamp_max"},
    {"aten::_foreach_mul.List", "aten::mul.Tensor"},
    {"aten::_foreach_mul.Scalar", "aten::mul.Tensor"},
    {"aten::_foreach_mul.ScalarList", "aten::mul.Tensor"},
    {"aten::_foreach_mul.Tensor", "aten::mul.Tensor"},
    {"aten::_foreach_neg", "aten::neg"},
    {"aten::_foreach_pow.List", "aten::pow.Tensor_Tensor"},
    {"aten::_foreach_pow.Scalar", "aten::pow.Tensor_Scalar"},
    {"aten::_foreach_pow.ScalarList", "aten::pow.Tensor_Scalar"},
    {"aten::_foreach_reciprocal", "aten::reciprocal"},
    {"aten::_foreach_round", "aten::round"},
    {"aten::_foreach_rsqrt", "aten::rsqrt"},
    {"aten::_foreach_sigmoid", "aten::sigmoid"},
    {"aten::_foreach_sign", "aten::sign"},
    {"aten::_foreach_sin", "aten::sin"},
    {"aten::_foreach_sqrt", "aten::sqrt"},
    {"aten::_foreach_sub.List", "aten::sub.Tensor"},
    {"aten::_foreach_sub.Scalar", "aten::sub.Tensor", true},
    {"aten::_foreach_sub.ScalarList", "aten::sub.Tensor", true},
    {"aten::_foreach_tanh", "aten::tanh"},
    {"aten::_foreach_trunc", "aten::trunc"},
};

const ListOp& list_op(OpName name) {
  static const auto index = [] {
    std::unordered_map<OpName, const ListOp*> by_name;
    for (const ListOp& op : kListOps) by_name.emplace(OpName(op.name), &op);
    return by_name;
  }();
  return *index.at(name);
}

bool each(DecomposeQuery& q) {
  const ListOp& op = list_op(q.node().op);
  for (size_t i = 0; i < q.node().results.size(); ++i) {
    if (!is_wanted(q, i)) continue;
    std::vector<Arg> args;
    for (const Arg& arg : q.node().args)
      args.push_back(arg.is<ArgList>() ? arg.get<ArgList>().at(i) : arg);
    if (op.has_alpha) args.emplace_back(1);
    give(q, i, write(q, op.single, std::move(args)));
  }
  return true;
}

// _foreach_norm.Scalar(self, ord, dtype)
bool norms(DecomposeQuery& q) {
  if (!q.arg(1).is<double>() && !(q.arg(1).is<Size>() && q.arg(1).get<Size>().is_known()))
    return false;
  const std::vector<ValueId> tensors = q.values(0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!is_wanted(q, i)) continue;
    const TensorType type = q.type_of(tensors[i]);
    if (!is_plain_float(type) || !has_elements(type) || !is_plain_float(q.result(i))) return false;
    const Term x = cast({&q, tensors[i]}, accumulate_of(q.result(i).dtype));
    const std::optional<Term> norm = norm_of(x, q.number(1), dims_from(0, type.rank()), false);
    if (!norm) return false;
    give(q, i, *norm);
  }
  return true;
}

std::vector<Meaning> collect() {
  std::vector<Meaning> meanings;
  for (const ListOp& op : kListOps) meanings.push_back({.name = op.name, .decompose = each});
  meanings.push_back({.name = "aten::_foreach_norm.Scalar", .decompose = norms});
  return meanings;
}

}  // namespace

std::span<const Meaning> foreach_decompositions() {
  static const std::vector<Meaning> meanings = collect();
  return meanings;
}

}  // namespace smelt
