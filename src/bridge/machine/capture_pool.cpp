#include "bridge/machine/capture_pool.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "cuda_graphs/graph_driver.h"

namespace smelt {
namespace {

MakeCapturePool make_pool = nullptr;

}  // namespace

void set_capture_pools(MakeCapturePool make) { make_pool = make; }

CaptureStream::CaptureStream(std::unique_ptr<CapturePool> pool) : pool_(std::move(pool)) {
  constexpr unsigned kNonBlocking = 1;
  cuda_graphs::Stream stream = nullptr;
  cuda_graphs::check(cuda_graphs::graph_driver()->stream_create(&stream, kNonBlocking),
                     "cuStreamCreate");
  stream_ = stream;
}

CaptureStream::~CaptureStream() {
  if (stream_ != nullptr)
    cuda_graphs::graph_driver()->stream_destroy(static_cast<cuda_graphs::Stream>(stream_));
}

std::shared_ptr<CaptureStream> CaptureStream::of(int device, void* launch_stream) {
  static std::mutex mutex;
  static std::map<std::pair<int, void*>, std::weak_ptr<CaptureStream>> streams;
  {
    const std::lock_guard lock(mutex);
    if (auto known = streams[{device, launch_stream}].lock()) return known;
  }
  if (make_pool == nullptr) return nullptr;
  std::unique_ptr<CapturePool> pool = make_pool(device);  // without the lock: it asks Python
  if (pool == nullptr) return nullptr;
  std::shared_ptr<CaptureStream> made(new CaptureStream(std::move(pool)));
  const std::lock_guard lock(mutex);
  std::weak_ptr<CaptureStream>& entry = streams[{device, launch_stream}];
  if (auto known = entry.lock()) return known;
  entry = made;
  return made;
}

void CaptureStream::warm_up(int device) {
  static thread_local std::set<void*> warm;
  if (!warm.insert(stream_).second) return;
  const c10::Device where(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
  const c10::StreamGuard on(
      c10::Stream(c10::Stream::UNSAFE, where, reinterpret_cast<c10::StreamId>(stream_)));
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard below(c10::autocast_dispatch_keyset);
  for (const c10::ScalarType dtype : {c10::kFloat, c10::kBFloat16}) {
    const at::Tensor square = at::zeros({16, 16}, c10::TensorOptions().dtype(dtype).device(where));
    at::mm(square, square);
    at::addmm(square[0], square, square);
  }
  cuda_graphs::check(
      cuda_graphs::graph_driver()->stream_synchronize(static_cast<cuda_graphs::Stream>(stream_)),
      "cuStreamSynchronize");
}

}  // namespace smelt
