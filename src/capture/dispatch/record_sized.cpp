#include "capture/dispatch/record_sized.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/index.h>
#include <ATen/ops/nonzero_static.h>

#include <optional>

#include "base/error.h"
#include "capture/dispatch/recorder.h"

namespace smelt {
namespace {

// The places of what is not zero, of which there are so many in each run that holds.
at::Tensor places(const at::Tensor& of, int64_t count) {
  Recorder& recorder = *Recorder::current();
  const at::Tensor mask = of.scalar_type() == c10::kBool ? of : of.ne(0);
  const at::Scalar found = recorder.item(mask.sum(), at::Scalar(count));
  recorder.expect(recorder.compute(NumberOp::eq, found, at::Scalar(count)), true);
  return at::nonzero_static(mask, count, /*fill_value=*/0);
}

// nonzero() on the CPU gives them column by column.
at::Tensor by_columns(const at::Tensor& places) {
  if (places.size(0) == 0) return at::empty_strided(places.sizes(), {1, 0}, places.options());
  return places.t().clone(at::MemoryFormat::Contiguous).t();
}

std::vector<at::Tensor> columns(const at::Tensor& mask, int64_t count) {
  if (mask.dim() == 0) throw Error("a mask without dimensions");
  return places(mask, count).unbind(1);
}

bool is_mask(const at::Tensor& index) {
  return index.defined() &&
         (index.scalar_type() == c10::kBool || index.scalar_type() == c10::kByte);
}

// How many elements the mask selects: what is selected stands in its place.
int64_t selected(const std::vector<int64_t>& sizes,
                 const c10::List<std::optional<at::Tensor>>& indices) {
  std::optional<size_t> place;
  for (size_t i = 0; i < indices.size(); ++i) {
    const std::optional<at::Tensor> index = indices.get(i);
    if (!index || !index->defined()) continue;
    if (place || !is_mask(*index)) throw Error("a mask beside other indices");
    place = i;
  }
  return sizes.at(place.value());
}

at::Tensor index(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices,
                 const std::vector<int64_t>& sizes) {
  const int64_t count = selected(sizes, indices);
  c10::List<std::optional<at::Tensor>> given;
  for (const std::optional<at::Tensor>& index : indices.vec()) {
    if (!index || !index->defined()) {
      given.push_back(std::nullopt);
      continue;
    }
    for (const at::Tensor& column : columns(*index, count)) given.push_back(column);
  }
  return at::index(self, given);
}

at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask, int64_t count) {
  const auto [shown, where] = at::expand_outplace(self, mask);
  c10::List<std::optional<at::Tensor>> given;
  for (const at::Tensor& column : columns(*where, count)) given.push_back(column);
  return at::index(*shown, given);
}

}  // namespace

void record_sized(const c10::OperatorHandle& op, const std::vector<std::vector<int64_t>>& sizes,
                  std::vector<c10::IValue>& stack) {
  const int64_t count = sizes.at(0).at(0);
  switch (op_info(op).facts.selects) {
    case Selection::none:
      throw Error(op.schema().name() + ", whose result has a size that contents decide");
    case Selection::places: stack = {by_columns(places(stack[0].toTensor(), count))}; break;
    case Selection::place_columns:
      stack = {by_columns(places(stack[0].toTensor(), count)).unbind(1)};
      break;
    case Selection::masked:
      stack = {masked_select(stack[0].toTensor(), stack[1].toTensor(), count)};
      break;
    case Selection::indexed:
      stack = {index(stack[0].toTensor(), stack[1].to<c10::List<std::optional<at::Tensor>>>(),
                     sizes[0])};
      break;
  }
}

}  // namespace smelt
