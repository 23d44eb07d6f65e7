#include "capture/bytecode/run/stance.h"

#include <array>
#include <cstddef>

namespace smelt::bytecode {
namespace {

// In the order of enum Stance.
constexpr auto kNames = std::to_array<const char*>(
    {"default", "eager", "fail_on_recompile", "eager_on_recompile", "as_process"});

}  // namespace

std::optional<Stance> stance_of(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<Stance>(i);
  return std::nullopt;
}

const char* name_of(Stance stance) { return kNames[static_cast<size_t>(stance)]; }

}  // namespace smelt::bytecode
