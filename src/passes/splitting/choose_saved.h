// Which values of a joint graph stay in memory from the forward to the backward.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace smelt {

enum class Saving : uint8_t {
  never,  // it may not be saved; the backward gets it by computing it, if at all
  free,   // its memory lives anyway
  costs,  // its memory is kept alive by being saved
  copy,   // a copy of it may be saved, made for that alone
};

struct SavingChoice {
  const Graph& joint;
  // By node: the outputs, an effect or a draw needs it in the forward.
  const std::vector<bool>& in_forward;
  // By value: computed of a gradient that comes in, so there in the backward only.
  const std::vector<bool>& is_late;
  // By value: some gradient depends on it.
  const std::vector<bool>& is_needed;
  // By value.
  const std::vector<Saving>& saving;
};

// By value: is it saved? What the backward needs can then be computed of these, of constants and of
// the gradients that come in. Nothing if there is no such choice.
std::optional<std::vector<bool>> choose_saved(const SavingChoice& choice);

}  // namespace smelt
