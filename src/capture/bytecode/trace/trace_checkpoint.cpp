// Where a trace can end, and what may be alive there: an iterator that can be made again, and
// nothing that can't.
#include <algorithm>

#include "capture/bytecode/trace/trace.h"

namespace smelt::bytecode {

Position Trace::position() const {
  return {steps_.size(),
          log_->position(),
          required_.guards.size(),
          required_.absent.size(),
          required_.lookups.size(),
          required_.aliases.size(),
          required_.readings.size(),
          required_.remembered.size()};
}

// What is open now is closed by code that is still to come.
bool Trace::is_in_between() const {
  return state.transforms > 0 || state.forbids_forward_mode || has_passing_store();
}

void Trace::checkpoint(int offset, int depth, std::span<PyObject* const> slots,
                       std::span<const Ref> refs) {
  if (!active() || is_in_between()) return;
  Checkpoint next;
  next.remade.resize(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    PyObject* object = slots[i];
    Operand& slot = next.slots.emplace_back();
    if (object == nullptr) continue;
    slot.ref = value(object, refs[i]).ref;
    if (slot.ref == 0) {
      if (!is_constant(object)) return;
      slot.constant = Object::share(object);
    }
    if (is_passing(object) &&
        (std::ranges::count(slots, object) > 1 || !describe(object, next.remade[i], next.held)))
      return;
  }
  next.offset = offset;
  next.depth = depth;
  next.position = position();
  checkpoint_ = std::move(next);
}

}  // namespace smelt::bytecode
