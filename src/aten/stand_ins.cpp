#include "aten/stand_ins.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>

#include <limits>

#include "ops/facts.h"

namespace smelt {
namespace {

std::optional<StandIns::Found> find_symbolic(StandIns& stand_ins, const c10::IValue& value) {
  if (value.isSymInt()) return stand_ins.find(*value.toSymInt().toSymNodeImplUnowned());
  if (value.isSymFloat()) return stand_ins.find(*value.toSymFloat().toSymNodeImplUnowned());
  return std::nullopt;
}

// A list of numbers is shared by all copies of it: another one takes its place.
c10::IValue with_numbers(const c10::IValue& value, const std::vector<StandIns::Found>& found,
                         const std::vector<size_t>& at, const c10::TypePtr& type) {
  const auto elements = value.toListRef();
  if (!takes_numbers(type)) {  // sizes
    std::vector<int64_t> ints;
    for (const c10::IValue& element : elements)
      ints.push_back(element.isInt() ? element.toInt() : 0);
    for (size_t i = 0; i < at.size(); ++i) ints[at[i]] = found[i].value.toLong();
    return ints;
  }
  c10::List<c10::Scalar> list;
  list.reserve(elements.size());
  for (const c10::IValue& element : elements)
    list.push_back(element.isSymInt() || element.isSymFloat() ? c10::Scalar(0)
                                                              : element.toScalar());
  for (size_t i = 0; i < at.size(); ++i) list.set(at[i], found[i].value);
  return list;
}

}  // namespace

bool takes_numbers(const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>())
    return takes_numbers(optional->getElementType());
  if (const auto list = type->cast<c10::ListType>()) return takes_numbers(list->getElementType());
  return type->kind() == c10::TypeKind::NumberType;
}

namespace {

bool takes_sizes(const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>())
    return takes_sizes(optional->getElementType());
  if (const auto list = type->cast<c10::ListType>()) return takes_sizes(list->getElementType());
  return type->kind() == c10::TypeKind::SymIntType;
}

}  // namespace

at::Tensor number_as_tensor(const c10::Scalar& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

c10::Scalar scalar_in(const at::Tensor& tensor) {
  const void* data = tensor.unsafeGetTensorImpl()->data();
  switch (tensor.scalar_type()) {
    case c10::kBool: return *static_cast<const bool*>(data);
    case c10::kLong: return *static_cast<const int64_t*>(data);
    case c10::kComplexDouble: return *static_cast<const c10::complex<double>*>(data);
    default: return *static_cast<const double*>(data);
  }
}

std::vector<TakenNumber> take_stand_ins(StandIns& stand_ins, const OpInfo& op,
                                        std::vector<c10::IValue>& stack, size_t first) {
  stand_ins.reach();
  std::vector<TakenNumber> taken;
  const auto& schema = op.handle.schema().arguments();
  const auto take = [&](const TakenNumber& scalar, const StandIns::Found& found, bool is_written) {
    if (scalar.id == std::numeric_limits<ScalarId>::max()) return;  // computed of one
    const bool is_number = scalar.is_tensor || takes_numbers(op.arg_types[scalar.argument]);
    const bool can_take = is_number && op.log.takes_scalars;
    // What sizes come of a Scalar is known of PyTorch's own ops alone.
    const bool can_take_size =
        found.is_size && ((is_number && library_of(op.name) == Library::aten) ||
                          takes_sizes(schema[scalar.argument].real_type()));
    if ((!can_take && !can_take_size) || is_written) return stand_ins.look_at(scalar.id);
    if (!can_take) stand_ins.take_as_size(scalar.id);
    taken.push_back(scalar);
  };
  for (size_t i = first; i < stack.size(); ++i) {
    c10::IValue& value = stack[i];
    const auto argument = static_cast<uint32_t>(i - first);
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->is_wrapped_number()) continue;
      const auto found = stand_ins.find(tensor);
      if (!found) continue;
      const c10::AliasInfo* alias = schema[argument].alias_info();
      take({argument, -1, true, found->id}, *found, alias != nullptr && alias->isWrite());
      value = number_as_tensor(found->value);
    } else if (value.isSymInt() || value.isSymFloat()) {
      const auto found = find_symbolic(stand_ins, value);
      if (!found) continue;
      take({argument, -1, false, found->id}, *found, false);
      value = found->value;
    } else if (value.isList() && !value.isTensorList()) {
      std::vector<StandIns::Found> found;
      std::vector<size_t> at;
      const auto elements = value.toListRef();
      for (size_t k = 0; k < elements.size(); ++k) {
        const auto one = find_symbolic(stand_ins, elements[k]);
        if (!one) continue;
        found.push_back(*one);
        at.push_back(k);
        take({argument, static_cast<int32_t>(k), false, one->id}, *one, false);
      }
      if (!found.empty()) value = with_numbers(value, found, at, op.arg_types[argument]);
    }
  }
  return taken;
}

}  // namespace smelt
