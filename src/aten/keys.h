// The two dispatch keys the recorder lives on.
#pragma once

#include <c10/core/DispatchKeySet.h>

namespace smelt {

// Above autocast and autograd: sees every op of the recorded region first, real tensors included.
// Unused in PyTorch's core.
constexpr c10::DispatchKey kTopKey = c10::DispatchKey::DeferredInit;
// Below functionalization, on top of the device's own backend bit: writes the node down. A
// functionality key, not a backend: composite ops decompose as on the device itself.
constexpr c10::DispatchKey kRecordKey = c10::DispatchKey::Fake;

}  // namespace smelt
