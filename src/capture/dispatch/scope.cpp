// Where the recorder of a thread is kept, and how it is switched on and off.
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdlib>

#include "base/counters.h"
#include "capture/dispatch/keys.h"
#include "capture/dispatch/recorder.h"

namespace smelt {
namespace {

// The slot of PyTorch's thread-local state that carries the recorder: the autograd engine hands it
// to its device threads. It is meant for the mobile runtime, which never runs beside autograd.
c10::DebugInfoKind slot() { return c10::DebugInfoKind::MOBILE_RUNTIME_INFO; }

struct Carrier final : c10::DebugInfoBase {
  explicit Carrier(std::shared_ptr<Recorder> r) : recorder(std::move(r)) {}
  std::shared_ptr<Recorder> recorder;
};

std::mutex& open_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::unordered_map<uint64_t, std::weak_ptr<Recorder>>& open_recordings() {
  static std::unordered_map<uint64_t, std::weak_ptr<Recorder>> open;
  return open;
}

// Functionalization runs each in-place op once more on meta tensors, as a check, and reaches Python
// meta kernels there; the top kernel makes that check itself. PyTorch reads the variable once, at
// its first in-place op under functionalization.
const bool kMetaReferenceOff = [] {
  setenv("TORCH_DISABLE_FUNCTIONALIZATION_META_REFERENCE", "1", /*overwrite=*/0);
  return true;
}();

}  // namespace

Recorder* Recorder::current() {
  auto* carrier = static_cast<Carrier*>(c10::ThreadLocalDebugInfo::get(slot()));
  return carrier ? carrier->recorder.get() : nullptr;
}

at::Tensor Recorder::real_of_twin(const at::Tensor& twin) {
  RecordingTensor* recording = recording_inside(twin);
  if (!recording) return {};
  std::shared_ptr<Recorder> owner;
  {
    std::lock_guard lock(open_mutex());
    auto it = open_recordings().find(recording->recording());
    if (it != open_recordings().end()) owner = it->second.lock();
  }
  if (!owner) return {};
  std::lock_guard lock(owner->mutex_);
  auto it = owner->input_of_twin_.find(twin.unsafeGetTensorImpl());
  return it == owner->input_of_twin_.end() ? at::Tensor() : owner->inputs_[it->second].real;
}

struct RecordingScope::State {
  explicit State(std::shared_ptr<Recorder> recorder)
      : id(recorder->id()), carrier(slot(), std::make_shared<Carrier>(std::move(recorder))) {}
  uint64_t id;
  c10::DebugInfoGuard carrier;
  c10::impl::IncludeDispatchKeyGuard on{kTopKey};
  at::functionalization::impl::FunctionalizationReapplyViewsGuard keep_views{true};
};

RecordingScope::RecordingScope(std::shared_ptr<Recorder> recorder) {
  if (Recorder::current())
    throw Error(
        "a recording is open on this thread already: smelt.record can't be used inside a recorded "
        "function");
  {
    std::lock_guard lock(open_mutex());
    open_recordings()[recorder->id()] = recorder;
  }
  state_ = std::make_unique<State>(std::move(recorder));
}

RecordingScope::~RecordingScope() {
  const uint64_t id = state_->id;
  state_.reset();
  std::lock_guard lock(open_mutex());
  open_recordings().erase(id);
  // Casts of recording tensors must not be found by eager code.
  at::autocast::clear_cache();
}

}  // namespace smelt
