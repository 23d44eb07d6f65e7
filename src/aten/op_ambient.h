// PyTorch's switches that decide how an op computes and that Python code turns on and off around
// ops: grad mode, inference mode, autocast, kernels of attention. Read while ops are logged, put
// back while the log is run.
#pragma once

#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace smelt {

struct OpAmbient {
  bool grad = true;
  bool inference = false;
  // Of the CPU and of CUDA.
  std::array<bool, 2> autocast{};
  std::array<c10::ScalarType, 2> autocast_dtype{};
  bool autocast_cache = true;
  // Which filling of autocast's cache of casted weights: it is emptied when the outermost autocast
  // ends, and from then on weights are cast anew.
  uint32_t cache_filling = 0;
  // Flash, memory-efficient, plain, cuDNN's, a back end's: torch.nn.attention.sdpa_kernel.
  std::array<bool, 5> attention{};

  bool operator==(const OpAmbient&) const = default;
  bool any_autocast() const { return autocast[0] || autocast[1]; }
  // "no_grad, autocast(cuda, Half)"; empty for the usual one.
  std::string str() const;

  // What holds on this thread; cache_filling is 0.
  static OpAmbient current();
};

// Switches this thread from one ambient to the next, and back to what it was at the end, also when
// an exception passes.
class OpAmbientScope {
 public:
  // `assumed`: what holds already, as far as the caller knows.
  explicit OpAmbientScope(const OpAmbient& assumed);
  ~OpAmbientScope();
  OpAmbientScope(const OpAmbientScope&) = delete;
  OpAmbientScope& operator=(const OpAmbientScope&) = delete;

  void enter(const OpAmbient& next);

 private:
  void apply(const OpAmbient& next);

  const OpAmbient outside_;
  OpAmbient now_;
  bool changed_ = false;
  std::optional<c10::InferenceMode> inference_;
};

}  // namespace smelt
