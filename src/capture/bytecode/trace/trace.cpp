#include "capture/bytecode/trace/trace.h"

namespace smelt::bytecode {

Trace::Trace(PyObject* const* slots, size_t count) : ambient_(tensors().ambient()) {
  slot_refs_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    if (slots[i] != nullptr)
      slot_refs_[i] = path(NodeKind::slot, 0, nullptr, static_cast<int>(i), slots[i]);
  }
  log_->set_guess([this] {
    constexpr int kMostGuesses = 100;  // at one line
    const bool may = active() && guesses.are_allowed && may_guess_here(kMostGuesses);
    guesses.any = guesses.any || may;
    return may;
  });
  log_->set_count([this] {
    const bool may = may_count();
    sizes.are_counted = sizes.are_counted || may;
    return may;
  });
  log_->resume();
}

Trace::~Trace() { log_->pause(); }

// -- gradients

void Trace::set_grad(Value tensor, Value grad) {
  if (!active()) return;
  log_->set_grad(tensor.object, grad.object == nullptr ? Py_None : grad.object);
  check_log();
  note_grad(tensor);
}

// What the tensor had for a gradient before may be dropped by that.
void Trace::note_grad(Value tensor) {
  static PyObject* const name = PyUnicode_InternFromString("grad");
  if (const LogValue value = log_->value_of(tensor.object); value >= 0)
    backward.grads.insert(value);
  if (const Ref old = paths_.find({NodeKind::attribute, ref_of(tensor.object), name, 0}))
    let_go.note(nodes_[old].object.get());
}

void Trace::add_grads(std::span<const Value> leaves) {
  backward.any = true;
  for (const Value& leaf : leaves) note_grad(leaf);
}

}  // namespace smelt::bytecode
