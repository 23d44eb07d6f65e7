#include "capture/dispatch/eager_path.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include "capture/dispatch/recorder.h"

namespace smelt {
namespace {

using torch::jit::Stack;

// The op that gives the vectors too.
c10::OperatorHandle whole_of(const OpInfo& op) {
  const std::string name(op.facts.instead);
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
}

bool is_differentiated(const at::Tensor& tensor) {
  return (at::GradMode::is_enabled() && tensor.requires_grad()) || tensor._fw_grad(0).defined();
}

// Leaves one of the results that the op pushed.
void keep_result(Stack* stack, size_t first, size_t result) {
  c10::IValue kept = std::move((*stack)[first + result]);
  stack->resize(first);
  stack->push_back(std::move(kept));
}

// The values alone, without the vectors that a derivative needs.
bool decompose_values(const OpInfo& op, Stack* stack, size_t first) {
  const at::Tensor& self = (*stack)[first].toTensor();
  if (!recording_inside(self) || is_differentiated(self)) return false;
  if (op.facts.recording == Recording::singular) {
    const auto driver = stack->begin() + static_cast<ptrdiff_t>(first) + 1;
    stack->insert(driver, {/*full_matrices=*/false, /*compute_uv=*/false});
    whole_of(op).callBoxed(stack);
    keep_result(stack, first, 1);
  } else if (op.facts.recording == Recording::symmetric) {
    stack->emplace_back(/*compute_v=*/false);
    whole_of(op).callBoxed(stack);
    keep_result(stack, first, 0);
  } else {
    whole_of(op).callBoxed(stack);
  }
  return true;
}

// Of two batches, one of a single matrix: eager multiplies batch by batch unless that matrix
// requires grad; a wrapper always gets one large product. Expanded, the matrix is a batch as well.
void expand_batch(Stack* stack, size_t first) {
  const at::Tensor a = (*stack)[first].toTensor(), b = (*stack)[first + 1].toTensor();
  if (a.dim() != 3 || b.dim() != 3 || !recording_inside(a) || !recording_inside(b)) return;
  if (a.sym_size(0) == b.sym_size(0)) return;
  if (a.sym_size(0) == 1 && !a.requires_grad())
    (*stack)[first] = a.expand_symint({b.sym_size(0), a.sym_size(1), a.sym_size(2)});
  else if (b.sym_size(0) == 1 && !b.requires_grad())
    (*stack)[first + 1] = b.expand_symint({a.sym_size(0), b.sym_size(1), b.sym_size(2)});
}

// Rebinds its out= argument instead of writing to it.
void refuse_matrix_rank(Recorder& recorder, const OpInfo& op) {
  if (op.is_mutable)
    recorder.refuse(
        "linalg.matrix_rank(out=...) can't be recorded; use what it returns without out=");
}

}  // namespace

bool take_eager_path(Recorder& recorder, const OpInfo& op, std::vector<c10::IValue>* stack,
                     size_t first) {
  if (!op.is_composite) return false;
  switch (op.facts.recording) {
    case Recording::rebinds: refuse_matrix_rank(recorder, op); break;
    case Recording::batched: expand_batch(stack, first); break;
    case Recording::singular:
    case Recording::symmetric:
    case Recording::eigenvalues: return decompose_values(op, stack, first);
    default: break;
  }
  return false;
}

}  // namespace smelt
