// What compiled functions do when they are called: a program that runs is switched to eager, and
// back again, or is kept from compiling.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

namespace smelt::bytecode {

enum class Stance : uint8_t {
  normal,
  eager,               // Python runs them
  fail_on_recompile,   // what fits nothing compiled is an error
  eager_on_recompile,  // what fits nothing compiled is run by Python
  as_process,          // of one function: it has none of its own
};

inline std::atomic<Stance> process_stance = Stance::normal;

// By the name that smelt.stance() takes; nothing if there is none of that name.
std::optional<Stance> stance_of(std::string_view name);
const char* name_of(Stance stance);

}  // namespace smelt::bytecode
