// What a user asks of smelt.compile: one piece of plain data, checked, from Python to the passes.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace smelt {

// Who computes what a graph says.
enum class Engine : uint8_t {
  native,     // kernels of smelt's own where they can be made, PyTorch's elsewhere
  eager,      // PyTorch's ops, one by one as they were traced
  interpret,  // as native, with kernels that the loop interpreter runs
  custom,     // a function of the user's
};

// How far nodes share kernels.
enum class Fusion : uint8_t {
  none,       // a kernel per node
  pointwise,  // chains of pointwise nodes
  full,       // reductions with what comes before and after, siblings
};

// When a program on CUDA is run as a CUDA graph.
enum class GraphUse : uint8_t { never, if_faster, always };

// Whether a size is part of what is compiled.
enum class SizeUse : uint8_t {
  fixed,     // each one is
  changing,  // until it changes
  varying,   // none is
};

struct Settings {
  Engine engine = Engine::native;

  // Of the graph and its kernels.
  std::set<std::string> disabled_passes;
  bool freeze = false;  // parameters and buffers of modules are taken to stay as they are
  Fusion fusion = Fusion::full;
  int max_fused_nodes = 64;
  bool contract = true;  // a*b + c may be computed with one rounding
  GraphUse cuda_graphs = GraphUse::never;

  // Calls do not wait for compilers: PyTorch's kernels are called until code is there.
  bool background = false;

  // Of the capture of Python code.
  bool fullgraph = false;  // an error where the tensor ops of a call can't be in one graph
  SizeUse sizes = SizeUse::changing;
  int recompile_limit = 8;  // variants of a piece of code
  // Compiled code that is measured to be slower than Python is given up, and variants must be worth
  // their cost. A limit that the user has given is used up in any case.
  bool rollback = true;
  bool is_limit_given = false;
  // A program for all sizes makes so many for sizes that come again, where they are quicker.
  int specialize = 8;
};

}  // namespace smelt
