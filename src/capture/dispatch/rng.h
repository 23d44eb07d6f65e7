// Random numbers while nothing is computed. The generators' real states stand still during a
// recording, but code may save and restore them (activation checkpointing does, to drop the same
// elements twice). So each generator is given a fresh seed as a token after every random op: the
// token that get_rng_state() returned tells which point of the stream is meant when it comes back
// through set_rng_state(), and the graph saves and restores the state there.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <vector>

#include "base/type.h"
#include "graph/graph.h"

namespace smelt {

class Recorder;

class RngTracker {
 public:
  RngTracker() = default;
  ~RngTracker() { leave(); }
  RngTracker(const RngTracker&) = delete;
  RngTracker& operator=(const RngTracker&) = delete;

  // Saves the generator's state and takes it over.
  void enter(Recorder& recorder, const at::Generator& generator);
  bool tracks(const at::Generator& generator) const;
  // Is the tensor a state that get_rng_state() gave out in this recording? PyTorch copies the CUDA
  // ones around before it sets them.
  bool is_state(const at::Tensor& tensor) const;
  // A random op is about to be written down: was the state set since the last one?
  void before_draw(Recorder& recorder, const at::Generator& generator);
  void after_draw(Recorder& recorder, const at::Generator& generator);
  // Notes states set after the last draw.
  void finish(Recorder& recorder);
  // Puts the real states back; never throws.
  void leave() noexcept;

 private:
  struct Tracked {
    at::Generator generator;
    at::Tensor saved;
    uint64_t token = 0;
    std::unordered_map<uint64_t, ValueId> states;  // token -> the graph's state value
    Arg argument;                                  // the device, or the opaque generator
  };
  Tracked* find(const at::Generator& generator);
  void mark(Recorder& recorder, Tracked& tracked);

  std::vector<Tracked> tracked_;
};

}  // namespace smelt
