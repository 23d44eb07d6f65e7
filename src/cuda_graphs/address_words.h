// Where a captured CUDA graph holds the addresses of inputs and outputs. The parameters of library
// kernels are bytes that nobody describes. So the same work is captured several times, with inputs
// and outputs at other addresses each time: a word that follows an address through all captures is
// one that has to be changed when that tensor lies elsewhere.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace smelt::cuda_graphs {

// A node of a graph as plain data.
struct CapturedNode {
  std::string what;             // what has to be equal in all captures: kind, kernel, grid, sizes
  std::vector<uint64_t> words;  // its parameters; each begins at a word
  int32_t step = 0;             // of the program, by which it was captured
};

struct Memory {
  uint64_t address = 0;
  uint64_t bytes = 0;
  int32_t step = 0;  // it is there from this step of the program on
};

// One capture: what lay where, and what came of it.
struct Capture {
  std::vector<Memory> inputs;
  std::vector<Memory> outputs;
  std::vector<CapturedNode> nodes;
};

// A word that is the address of an input or output plus a constant.
struct Place {
  int32_t node = 0;
  int32_t word = 0;
  int32_t tensor = 0;  // inputs, and behind them outputs
  int64_t offset = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

struct Places {
  Decision possible = Decision::allow();
  std::vector<Place> all;  // by node
};

// Of captures in which each input and output lies at an address of its own, such that no two inputs
// are moved by the same distance from one capture to the next.
Places find_places(std::span<const Capture> captures);

// Where input `input` of `count` lies in a capture, as a distance from the beginning of a piece
// of memory: multiples of kSlot; each input moves, no two move by the same distance, and none by a
// multiple of kBlock. What PyTorch's allocator gives lies at multiples of that, so that memory of
// the program's own, and outputs, move by such.
inline constexpr uint64_t kSlot = 256;
inline constexpr uint64_t kBlock = 512;
uint64_t slot_of(size_t input, size_t capture, size_t count);

}  // namespace smelt::cuda_graphs
