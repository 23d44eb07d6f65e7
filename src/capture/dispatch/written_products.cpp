// What PyTorch does on the CPU (addmm_impl_cpu_, bmm_out_or_baddbmm_): memory whose rows lie one
// behind the other is written by rows; any other by columns, in a copy if columns do not lie so
// either. A batch that is not contiguous is a product for each of its matrices.
#include "capture/dispatch/written_products.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include <optional>

#include "capture/dispatch/recording_tensor.h"
#include "ops/written_product.h"

namespace smelt {
namespace {

using torch::jit::Stack;

constexpr auto kContiguous = at::MemoryFormat::Contiguous;

bool are_consecutive(const c10::SymInt& step, const c10::SymInt& next, const c10::SymInt& length) {
  return step == 1 && next >= length.max(1);
}

bool is_written_by_rows(const at::Tensor& target) {
  const auto rows = target.sym_size(-2), columns = target.sym_size(-1);
  const auto down = target.sym_stride(-2), along = target.sym_stride(-1);
  return !are_consecutive(down, along, rows) && are_consecutive(along, down, columns);
}

// Small ones are computed element by element, in whatever memory.
bool is_written_one_by_one(const at::Tensor& target, const at::Tensor& left) {
  constexpr int64_t kSmall = 400;         // multiplications; PyTorch's number
  constexpr int64_t kMostMatrices = 256;  // each is a node here
  if (target.is_contiguous()) return false;
  const auto matrices = target.sym_size(0).maybe_as_int(), rows = target.sym_size(1).maybe_as_int(),
             columns = target.sym_size(2).maybe_as_int(), inner = left.sym_size(2).maybe_as_int();
  return matrices && rows && columns && inner && *rows * *columns * *inner >= kSmall &&
         *matrices <= kMostMatrices;
}

c10::OperatorHandle find_op(OpName op) {
  const std::string& name = op.str();
  const auto dot = name.find('.');
  const std::string overload(dot == name.npos ? "" : name.substr(dot + 1));
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.substr(0, dot).c_str(),
                                                        overload.c_str());
}

// A leaf that requires a gradient is the op's own error to raise.
bool may_be_written(const at::Tensor& target) {
  return !(at::GradMode::is_enabled() && target.requires_grad() && target.is_leaf());
}

// The same call on other tensors.
void call(const c10::OperatorHandle& op, const WrittenProduct& at, Stack arguments,
          const at::Tensor& target, const at::Tensor& left, const at::Tensor& right,
          const std::optional<at::Tensor>& added) {
  arguments[at.left] = left;
  arguments[at.left + 1] = right;
  arguments[at.target] = target;
  if (added) arguments[at.added] = *added;
  op.callBoxed(&arguments);
}

}  // namespace

bool write_product_by_columns(const OpInfo& op, Stack* stack, size_t first) {
  const WrittenProduct* at = find_written_product(op.name);
  if (!at) return false;
  const Stack arguments(stack->begin() + static_cast<ptrdiff_t>(first), stack->end());
  const at::Tensor target = arguments[at->target].toTensor();
  const at::Tensor left = arguments[at->left].toTensor();
  const at::Tensor right = arguments[at->left + 1].toTensor();
  for (const at::Tensor& tensor : {target, left, right})
    if (tensor.dim() != at->dims || !recording_inside(tensor) || !tensor.is_cpu()) return false;
  if (target.sym_size(-2) != left.sym_size(-2) || target.sym_size(-1) != right.sym_size(-1) ||
      target.sym_numel() == 0 || !may_be_written(target))
    return false;
  std::optional<at::Tensor> added;
  if (at->added >= 0) added = arguments[at->added].toTensor().expand_symint(target.sym_sizes());
  if (at->dims == 2) {
    // Of a single element rows and columns are the same.
    if (is_written_by_rows(target) || target.sym_numel() == 1) return false;
    if (added) added = added->transpose(0, 1);
    const at::Tensor columns = target.transpose(0, 1);
    const at::Tensor written = is_written_by_rows(columns) ? columns : columns.clone(kContiguous);
    call(op.handle, *at, arguments, written, right.transpose(0, 1), left.transpose(0, 1), added);
    if (!written.is_same(columns)) columns.copy_(written);
  } else {
    if (!is_written_one_by_one(target, left)) return false;
    const c10::OperatorHandle single = find_op(at->single);
    for (int64_t i = 0; i < target.size(0); ++i)
      call(single, *at, arguments, target.select(0, i), left.select(0, i), right.select(0, i),
           added ? std::optional(added->select(0, i)) : std::nullopt);
  }
  stack->resize(first);
  stack->emplace_back(target);
  return true;
}

}  // namespace smelt
