#include "aten/log_facts.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "aten/each_tensor.h"
#include "aten/op_info.h"

namespace smelt {
namespace {

bool has_mask(const std::vector<c10::IValue>& stack, size_t first) {
  bool found = false;
  for (size_t i = first; i < stack.size(); ++i)
    if (!stack[i].isTensor())
      each_tensor(stack[i], [&](const at::Tensor& tensor) {
        found |= tensor.scalar_type() == c10::kBool || tensor.scalar_type() == c10::kByte;
      });
  return found;
}

bool is_tensor(const c10::Argument& result) {
  return result.type()->kind() == c10::TypeKind::TensorType;
}

}  // namespace

LogFacts make_log_facts(const OpInfo& op) {
  const OpFacts& known = op.facts;
  const auto& returns = op.handle.schema().returns();
  const bool only_tensors = std::ranges::all_of(returns, is_tensor);
  LogFacts facts;
  facts.data_dependent = op.data_dependent || known.sized_by_contents ||
                         (op.literal_results && !known.literals_by_types);
  facts.dynamic_shapes = !op.literal_results && !op.is_mutable && !op.is_custom &&
                         !returns.empty() && (only_tensors || known.gives_columns);
  facts.ignores_autograd = op.is_factory || known.lifts || known.makes_new;
  const Library library = library_of(op.name);
  facts.takes_scalars = !op.literal_results &&
                        (library == Library::aten || library == Library::own) &&
                        !facts.data_dependent && !known.sized_by_numbers;
  facts.takes_any_shape =
      !op.literal_results && !op.is_custom && only_tensors && !known.sets_storage && !known.resizes;
  if (const auto reduction = op.handle.schema().argumentIndexWithName("reduction"))
    facts.reduction = *reduction;
  if (op.is_mutable) return facts;  // it says what it changes
  for (const int8_t argument : known.writes)
    if (argument >= 0) facts.silent_writes.push_back(argument);
  facts.silent_when = known.writes_if;
  return facts;
}

bool gives_one(const OpInfo& op, const std::vector<Arg>& args) {
  const int reduction = op.log.reduction;
  return op.facts.reduces_all ||
         (reduction >= 0 && args[reduction].is<Size>() && !args[reduction].get<Size>().is(0));
}

bool depends_on_contents(const OpInfo& op, const std::vector<c10::IValue>& stack, size_t first) {
  if (!op.log.data_dependent) return false;
  if (op.facts.by_masks_only) return has_mask(stack, first);
  if (op.facts.unless_given < 0) return true;
  const c10::IValue& size = stack[first + static_cast<size_t>(op.facts.unless_given)];
  return !size.isInt() || size.toInt() < 0;
}

}  // namespace smelt
