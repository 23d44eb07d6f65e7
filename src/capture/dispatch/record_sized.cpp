#include "capture/dispatch/record_sized.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/broadcast_tensors.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/index.h>
#include <ATen/ops/nonzero_static.h>

#include <optional>

#include "base/error.h"
#include "capture/dispatch/recorder.h"

namespace smelt {
namespace {

// The places of what is not zero, of which there are so many in each run that holds; of a count
// that varies somebody else knows it.
at::Tensor places(const at::Tensor& of, const c10::SymInt& count) {
  Recorder& recorder = *Recorder::current();
  const at::Tensor mask = of.scalar_type() == c10::kBool ? of : of.ne(0);
  if (const std::optional<int64_t> known = count.maybe_as_int()) {
    const at::Scalar found = recorder.item(mask.sum(), at::Scalar(*known));
    recorder.expect(recorder.compute(NumberOp::eq, found, at::Scalar(*known)), true);
  }
  return at::nonzero_static_symint(mask, count, /*fill_value=*/0);
}

// nonzero() on the CPU gives them column by column.
at::Tensor by_columns(const at::Tensor& places) {
  if (places.sym_size(0) == 0)
    return at::empty_strided({0, places.size(1)}, {1, 0}, places.options());
  return places.t().clone(at::MemoryFormat::Contiguous).t();
}

std::vector<at::Tensor> columns(const at::Tensor& mask, const c10::SymInt& count) {
  if (mask.dim() == 0) throw Error("a mask without dimensions");
  return places(mask, count).unbind(1);
}

bool is_mask(const at::Tensor& index) {
  return index.defined() &&
         (index.scalar_type() == c10::kBool || index.scalar_type() == c10::kByte);
}

// Which index is the mask: what it selects stands in its place.
size_t place_of_mask(const c10::List<std::optional<at::Tensor>>& indices) {
  std::optional<size_t> place;
  for (size_t i = 0; i < indices.size(); ++i) {
    const std::optional<at::Tensor> index = indices.get(i);
    if (!index || !index->defined()) continue;
    if (place || !is_mask(*index)) throw Error("a mask beside other indices");
    place = i;
  }
  return place.value();
}

at::Tensor index(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices,
                 const c10::SymInt& count) {
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

at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask, const c10::SymInt& count) {
  const std::vector<at::Tensor> shown = at::broadcast_tensors({self, mask});
  c10::List<std::optional<at::Tensor>> given;
  for (const at::Tensor& column : columns(shown[1], count)) given.push_back(column);
  return at::index(shown[0], given);
}

// repeat_interleave(self, repeats, dim): only the sizes are right.
at::Tensor repeated(const at::Tensor& self, const c10::IValue& dim, const c10::SymInt& count) {
  if (dim.isNone()) return at::empty_symint({count}, self.options());
  c10::SymDimVector sizes(self.sym_sizes());
  sizes[static_cast<size_t>(at::maybe_wrap_dim(dim.toInt(), self.dim()))] = count;
  return at::empty_symint(sizes, self.options());
}

// _unique2(self, sorted, return_inverse, return_counts): likewise.
std::vector<c10::IValue> unique(const at::Tensor& self, bool gives_places, bool gives_counts,
                                const c10::SymInt& count) {
  const at::TensorOptions whole = self.options().dtype(at::kLong);
  return {at::empty_symint({count}, self.options()),
          gives_places ? at::empty_symint(self.sym_sizes(), whole) : at::empty({0}, whole),
          gives_counts ? at::empty_symint({count}, whole) : at::empty({0}, whole)};
}

}  // namespace

void record_counted(const c10::OperatorHandle& op, const c10::SymInt& count,
                    std::vector<c10::IValue>& stack) {
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
      stack = {
          index(stack[0].toTensor(), stack[1].to<c10::List<std::optional<at::Tensor>>>(), count)};
      break;
    case Selection::repeated: stack = {repeated(stack[0].toTensor(), stack.at(2), count)}; break;
    case Selection::unique:
      stack = unique(stack[0].toTensor(), stack.at(2).toBool(), stack.at(3).toBool(), count);
      break;
  }
}

void record_sized(const c10::OperatorHandle& op, const std::vector<std::vector<int64_t>>& sizes,
                  std::vector<c10::IValue>& stack) {
  size_t dim = 0;
  const Selection selects = op_info(op).facts.selects;
  if (selects == Selection::repeated || selects == Selection::unique)
    throw Error(op.schema().name() + ", whose result has a size that contents decide");
  if (selects == Selection::indexed)
    dim = place_of_mask(stack[1].to<c10::List<std::optional<at::Tensor>>>());
  record_counted(op, sizes.at(0).at(dim), stack);
}

}  // namespace smelt
