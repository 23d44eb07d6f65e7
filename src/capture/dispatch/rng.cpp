#include "capture/dispatch/rng.h"

#include <atomic>
#include <cstring>

#include "aten/convert.h"
#include "capture/dispatch/recorder.h"
#include "graph/effects.h"

namespace smelt {
namespace {

// No user's seed looks like this.
constexpr uint64_t kTokens = 0x5be1'7000'0000'0000ull;

uint64_t next_token() {
  static std::atomic<uint64_t> counter{0};
  return kTokens + counter.fetch_add(1, std::memory_order_relaxed);
}
bool looks_like_token(uint64_t seed) { return seed >> 40 == kTokens >> 40; }

}  // namespace

RngTracker::Tracked* RngTracker::find(const at::Generator& generator) {
  for (Tracked& tracked : tracked_)
    if (tracked.generator == generator) return &tracked;
  return nullptr;
}

bool RngTracker::tracks(const at::Generator& generator) const {
  return const_cast<RngTracker*>(this)->find(generator) != nullptr;
}

bool RngTracker::is_state(const at::Tensor& tensor) const {
  constexpr int64_t kCudaStateBytes = 16;  // seed, then offset
  if (tensor.scalar_type() != c10::kByte || !tensor.is_cpu() || tensor.dim() != 1 ||
      tensor.size(0) != kCudaStateBytes || !tensor.is_contiguous())
    return false;
  uint64_t seed;
  std::memcpy(&seed, tensor.const_data_ptr(), sizeof seed);
  for (const Tracked& tracked : tracked_)
    if (tracked.states.count(seed)) return true;
  return false;
}

void RngTracker::enter(Recorder& recorder, const at::Generator& generator) {
  Tracked tracked;
  tracked.generator = generator;
  {
    c10::impl::ExcludeDispatchKeyGuard plain(recording_keys());
    std::lock_guard lock(tracked.generator.mutex());
    tracked.saved = tracked.generator.get_state();
  }
  tracked.argument = recorder.generator_arg(generator);
  tracked_.push_back(std::move(tracked));
  mark(recorder, tracked_.back());
}

// The stream has reached a new point: the graph can save it here (dropped if nobody comes back to
// it).
void RngTracker::mark(Recorder& recorder, Tracked& tracked) {
  const TensorType state = type_of(tracked.saved);
  const std::optional<TensorType> types[] = {state};
  const NodeId node =
      recorder.add_node(effects::kSaveRng, {tracked.argument}, types, Traits{.random = true});
  tracked.token = next_token();
  tracked.states.emplace(tracked.token, recorder.result_of(node));
  std::lock_guard lock(tracked.generator.mutex());
  tracked.generator.set_current_seed(tracked.token);
}

void RngTracker::before_draw(Recorder& recorder, const at::Generator& generator) {
  Tracked& tracked = *find(generator);
  const uint64_t seed = tracked.generator.current_seed();
  if (seed == tracked.token) return;
  ValueId state;
  if (auto it = tracked.states.find(seed); it != tracked.states.end()) {
    state = it->second;
  } else if (looks_like_token(seed)) {
    recorder.refuse(
        "a seed was computed from torch.initial_seed() in the function; compute it outside");
  } else {  // manual_seed() in the region: the state itself is known
    c10::impl::ExcludeDispatchKeyGuard plain(recording_keys());
    std::lock_guard lock(tracked.generator.mutex());
    state = recorder.add_constant(tracked.generator.get_state());
  }
  recorder.add_node(effects::kRestoreRng, {tracked.argument, Arg(Ref{state})}, {},
                    Traits{.effect = true, .random = true});
  mark(recorder, tracked);
}

void RngTracker::after_draw(Recorder& recorder, const at::Generator& generator) {
  mark(recorder, *find(generator));
}

void RngTracker::finish(Recorder& recorder) {
  for (Tracked& tracked : tracked_) before_draw(recorder, tracked.generator);
}

void RngTracker::leave() noexcept {
  c10::impl::ExcludeDispatchKeyGuard plain(recording_keys());
  for (Tracked& tracked : tracked_) {
    std::lock_guard lock(tracked.generator.mutex());
    tracked.generator.set_state(tracked.saved);
  }
  tracked_.clear();
}

}  // namespace smelt
