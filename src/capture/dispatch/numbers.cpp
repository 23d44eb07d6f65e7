// Numbers that are known only when the graph runs, in a recording (graph/numbers.h).
#include "graph/numbers.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "aten/convert.h"
#include "aten/keys.h"
#include "aten/number_node.h"
#include "aten/size_node.h"
#include "aten/stand_ins.h"
#include "capture/dispatch/recorder.h"

namespace smelt {
namespace {

DType dtype_of_item(DType dtype) {
  if (dtype == DType::b8) return dtype;
  return is_floating(dtype) ? DType::f64 : DType::i64;
}

}  // namespace

// A 0-dim tensor that counts as a number, so that an op may take it in a tensor's place. Only the
// functional tensor says so: functionalization wraps nothing that is a number.
at::Tensor Recorder::number_tensor(ValueId value) {
  at::Tensor& tensor = number_tensors_[value];
  if (tensor.defined()) return tensor;
  TensorType plain = graph_.type(value);
  plain.wrapped_number = false;
  tensor = at::functionalization::impl::to_functional_tensor(
      at::Tensor(c10::make_intrusive<RecordingTensor>(plain, id_, value, symbols_)));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  tensor.unsafeGetTensorImpl()
      ->unsafe_storage()
      .unsafeGetStorageImpl()
      ->set_throw_on_mutable_data_ptr();
  return tensor;
}

at::Scalar Recorder::scalar_of(ValueId value, std::optional<Number> example) {
  if (example) examples_[value] = *example;
  return to_scalar(RecordedNumber{id_, value, graph_.type(value).dtype, example});
}

std::optional<at::Scalar> Recorder::example_of(ValueId value) const {
  const auto known = examples_.find(value);
  if (known == examples_.end()) return std::nullopt;
  return to_scalar(known->second);
}

ValueId Recorder::value_of(const RecordedNumber& number) {
  if (number.recording != id_) refuse("a number of another recording");
  return number.value;
}

at::Scalar Recorder::add_number(const at::Scalar& example) {
  std::lock_guard lock(mutex_);
  const std::optional<Number> number = plain_number(example);
  if (!number) refuse("a complex number that changes from run to run");
  const auto index = static_cast<int32_t>(same_argument_.size());
  same_argument_.push_back(-1);
  const ValueId value = graph_.add_input(numbers::type_of(numbers::dtype_of(*number)),
                                         Source::argument, index, false);
  const at::Tensor twin = number_tensor(value);
  auto* storage = twin.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  input_of_twin_.emplace(twin.unsafeGetTensorImpl(), static_cast<int32_t>(inputs_.size()));
  inputs_.push_back({number_as_tensor(example), twin, storage, {}, true});
  return scalar_of(value, number);
}

at::Scalar Recorder::item(const at::Tensor& tensor, const std::optional<at::Scalar>& example) {
  std::lock_guard lock(mutex_);
  check_not_refused();
  const at::Tensor twin = recording_inside(tensor) ? tensor : twin_of(tensor);
  ValueId value = -1;
  {
    // Functionalization's syncs reach the record kernel, and nothing above it.
    c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKeySet({kTopKey}) |
                                             c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                             c10::autocast_dispatch_keyset);
    value = current_value(twin);
  }
  const TensorType& type = graph_.type(value);
  if (!type.numel().is(1)) refuse("item() of a tensor that has not one element");
  if (numbers::is_number(type)) {
    const auto known = examples_.find(value);
    return scalar_of(value, known == examples_.end() ? std::nullopt : std::optional(known->second));
  }
  if (is_complex(type.dtype)) refuse("item() of a complex tensor");
  const std::optional<TensorType> types[] = {numbers::type_of(dtype_of_item(type.dtype))};
  const NodeId node = add_node(numbers::kItem, {Arg(Ref{value})}, types, {});
  return scalar_of(result_of(node), example ? plain_number(*example) : std::nullopt);
}

Recorder::NumberOperand Recorder::operand_of(const at::Scalar& scalar) {
  if (const auto number = recorded_number(scalar))
    return {Arg(Ref{value_of(*number)}), {number->dtype, std::nullopt}, number->example};
  const std::optional<Number> literal = plain_number(scalar);
  if (!literal) refuse("arithmetic of a number of the recording and a size or complex number");
  return {numbers::to_arg(*literal), {numbers::dtype_of(*literal), literal}, literal};
}

at::Scalar Recorder::compute(NumberOp op, const at::Scalar& a, const at::Scalar& b) {
  std::lock_guard lock(mutex_);
  check_not_refused();
  const NumberOperand left = operand_of(a), right = is_unary(op) ? left : operand_of(b);
  std::optional<Number> example;
  if (left.example && right.example) {
    example = smelt::compute(op, *left.example, *right.example);
    if (!example) refuse("Python can't compute " + std::string(name_of(op)) + " of these numbers");
  }
  if (left.type.value && right.type.value) return to_scalar(*example);
  const std::optional<DType> dtype = numbers::result_of(op, left.type, right.type);
  if (!dtype)
    refuse("the type of " + std::string(name_of(op)) + " of two numbers depends on their values");
  std::vector<Arg> args = {Arg(std::string(name_of(op))), left.arg};
  if (!is_unary(op)) args.push_back(right.arg);
  const std::optional<TensorType> types[] = {numbers::type_of(*dtype)};
  return scalar_of(result_of(add_node(numbers::kCompute, std::move(args), types, {})), example);
}

void Recorder::expect(const at::Scalar& number, bool truth) {
  std::lock_guard lock(mutex_);
  check_not_refused();
  const auto recorded = recorded_number(number);
  if (!recorded) {
    const std::optional<Number> literal = plain_number(number);
    if (!literal || std::get<bool>(*smelt::compute(NumberOp::truth, *literal)) != truth)
      refuse("a number is not what it is expected to be");
    return;
  }
  if (!expected_.emplace(value_of(*recorded), truth).second) return;
  add_node(numbers::kExpect, {Arg(Ref{recorded->value}), Arg(truth)}, {}, Traits{.effect = true});
}

at::Tensor Recorder::wrapped(const at::Scalar& number) {
  std::lock_guard lock(mutex_);
  if (const auto recorded = recorded_number(number)) return number_tensor(value_of(*recorded));
  if (!number.isSymbolic()) return number_as_tensor(number);
  // What is in it does not matter: number_in() knows it.
  const at::Tensor tensor = number_as_tensor(at::Scalar(int64_t{0}));
  size_tensors_.emplace(tensor.unsafeGetTensorImpl(), number);
  kept_.push_back(tensor);
  return tensor;
}

at::Scalar Recorder::size_as_number(const Size& size) const {
  return at::Scalar(to_sym_int(size, symbols_));
}

at::Tensor Recorder::as_tensor(const at::Scalar& number) {
  return at::scalar_tensor(number, at::TensorOptions(number.type()));
}

// What PyTorch's conversion of a Scalar to the dtype of a kernel checks. Which dtype that is, each
// op knows for itself: one that all tensors at hand can hold is safe.
void Recorder::expect_fitting(ValueId number, DType dtype) {
  if (!numbers::may_not_fit(graph_.type(number).dtype, dtype)) return;
  if (!fitting_.emplace(number, dtype).second) return;
  add_node(numbers::kFits, {Arg(Ref{number}), Arg(dtype)}, {}, Traits{.effect = true});
}

void Recorder::expect_fitting(const Call& call, const std::vector<ValueId>& values,
                              std::span<const std::optional<TensorType>> results) {
  if (call.numbers.empty()) return;
  const auto check = [&](Ref ref) {
    if (!call.numbers.contains(ref.id)) return;
    for (size_t i = 0; i < call.types.size(); ++i)
      if (!call.types[i].wrapped_number) expect_fitting(values[ref.id], call.types[i].dtype);
    for (const std::optional<TensorType>& result : results)
      if (result) expect_fitting(values[ref.id], result->dtype);
  };
  for (size_t i = 0; i < call.args.size(); ++i)
    if (takes_numbers(call.op.arg_types[i])) each_ref(call.args[i], check);
}

}  // namespace smelt
