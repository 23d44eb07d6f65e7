// Where the recorder of a thread is kept, and how it is switched on and off.
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <cstdlib>

#include "aten/keys.h"
#include "capture/dispatch/recorder.h"
#include "diagnostics/counters.h"

namespace smelt {
namespace {

// The slot of PyTorch's thread-local state that carries the recorder: the autograd engine hands it
// to its device threads. It is meant for the mobile runtime, which never runs beside autograd.
c10::DebugInfoKind slot() { return c10::DebugInfoKind::MOBILE_RUNTIME_INFO; }

// Autograd keeps the state of a thread beyond the backward pass it was taken for, so the carrier
// outlives the scope and owns nothing.
struct Carrier final : c10::DebugInfoBase {
  explicit Carrier(Recorder* r) : recorder(r) {}
  std::atomic<Recorder*> recorder;
};

// Functionalization runs each in-place op once more on meta tensors, as a check, and reaches Python
// meta kernels there; the top kernel makes that check itself. PyTorch reads the variable once, at
// its first in-place op under functionalization.
const bool kMetaReferenceOff = [] {
  setenv("TORCH_DISABLE_FUNCTIONALIZATION_META_REFERENCE", "1", /*overwrite=*/0);
  return true;
}();

const bool kNumbersFindRecorder = [] {
  current_number_recording = []() -> NumberRecording* { return Recorder::current(); };
  return true;
}();

}  // namespace

Recorder* Recorder::current() {
  auto* carrier = static_cast<Carrier*>(c10::ThreadLocalDebugInfo::get(slot()));
  return carrier ? carrier->recorder.load(std::memory_order_relaxed) : nullptr;
}

struct RecordingScope::State {
  explicit State(std::shared_ptr<Recorder> r)
      : recorder(std::move(r)),
        carrier(std::make_shared<Carrier>(recorder.get())),
        carried(slot(), carrier) {}
  ~State() { carrier->recorder = nullptr; }

  std::shared_ptr<Recorder> recorder;
  std::shared_ptr<Carrier> carrier;
  c10::DebugInfoGuard carried;
  c10::impl::IncludeDispatchKeyGuard on{kTopKey};
  at::functionalization::impl::FunctionalizationReapplyViewsGuard keep_views{true};
};

RecordingScope::RecordingScope(std::shared_ptr<Recorder> recorder) {
  if (Recorder::current())
    throw Error(
        "a recording is open on this thread already: smelt.record can't be used inside a recorded "
        "function");
  // Casts of real tensors have no place in the graph, and its weak references forbid the swap of
  // twins.
  at::autocast::clear_cache();
  state_ = std::make_unique<State>(std::move(recorder));
}

RecordingScope::RecordingScope(std::shared_ptr<Recorder> recorder, Part)
    : state_(std::make_unique<State>(std::move(recorder))), is_part_(true) {}

RecordingScope::~RecordingScope() {
  const std::shared_ptr<Recorder> recorder = state_->recorder;
  state_.reset();
  if (is_part_) return;
  // Casts of recording tensors must not be found by eager code.
  at::autocast::clear_cache();
  recorder->close();
}

}  // namespace smelt
