#include "capture/log/ambient_list.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "aten/keys.h"

namespace smelt {

// A weight of our own: when its cast is another one than before, the cache was emptied.
uint32_t AmbientList::filling() {
  c10::impl::ExcludeDispatchKeyGuard plain(kTopKey);
  if (!probe_.defined()) {
    c10::InferenceMode off(false);
    probe_ = at::Tensor(at::ones({1})).set_requires_grad(true);
  }
  const at::Tensor cast =
      at::autocast::cached_cast(at::autocast::get_autocast_dtype(c10::kCPU), probe_, c10::kCPU);
  if (!cast.is_same(cast_probe_)) ++filling_;
  cast_probe_ = cast;
  return filling_;
}

int32_t AmbientList::current() {
  OpAmbient now = OpAmbient::current();
  now.cache_filling = now.any_autocast() && now.autocast_cache ? filling() : filling_;
  if (!all_.empty() && all_.back() == now) return static_cast<int32_t>(all_.size() - 1);
  const auto known = std::find(all_.begin(), all_.end(), now);
  if (known == all_.end()) {
    all_.push_back(now);
    return static_cast<int32_t>(all_.size() - 1);
  }
  return static_cast<int32_t>(known - all_.begin());
}

}  // namespace smelt
