#include "capture/bytecode/trace/stored_items.h"

#include "capture/bytecode/trace/tracing.h"

namespace smelt::bytecode {
namespace {

Trace* bystander() {
  const Tracing* tracing = active_tracing();
  return tracing == nullptr ? nullptr : tracing->trace;
}

}  // namespace

std::optional<Ref> find_stored(const Overlay& overlay, PyObject* key) {
  if (overlay.empty()) return std::nullopt;
  const Unfollowed unfollowed(bystander(), false, Trust::everybody);
  return overlay.find(key);
}

std::optional<Ref> find_stored_item(const Overlay& overlay, Py_ssize_t index) {
  if (overlay.empty()) return std::nullopt;
  const Unfollowed unfollowed(bystander(), false, Trust::everybody);
  return overlay.find_item(index);
}

void store(Overlay& overlay, PyObject* key, Ref ref) {
  const Unfollowed unfollowed(bystander(), false, Trust::everybody);
  overlay.set(key, ref);
}

}  // namespace smelt::bytecode
