// One kernel in the place of several that are started together: the updates of all parameters by an
// optimizer, the norms of all gradients. Its blocks are dealt out: each finds the member that it
// works for, and does what the block of that member's own kernel would do.
//
// All that members are given stands in one parameter, an array of words of eight bytes: for each
// member a word with its first block, its body and where its arguments begin; then the arguments of
// all, before those of each the number of its blocks along x.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codegen/cuda/source.h"

namespace smelt::cuda {

// What members with the same text share.
struct Body {
  const Facts* facts = nullptr;
  const std::string* text = nullptr;
};

// Which function of a body runs: its first, or the one that combines slices.
enum class Half : uint8_t { main, finish };

struct JoinedSource {
  std::string entry;
  std::string text;  // without the device helpers
  int64_t threads = 1;
};

// `bodies`: of each member, one of `all`.
JoinedSource write_joined(std::span<const Body> all, std::span<const size_t> bodies, Half half);

// How many arguments a function of a body takes.
size_t argument_count(const Body& body, Half half);

// As the text reads it.
constexpr uint64_t member_word(uint64_t first_block, uint64_t body, uint64_t arguments) {
  return first_block | body << 32 | arguments << 48;
}
// A kernel may have so many words of parameters (32,764 bytes).
constexpr size_t kMostWords = 4095;

}  // namespace smelt::cuda
