// How a kernel's points become threads, decided before any text is written.
//
// A team of threads computes an outer point. In a kernel over rows the threads of a team stand next
// to each other and take inner points next to each other (a softmax over rows); in one over columns
// threads next to each other have outer points next to each other, and those of a team take turns
// with the inner points (a sum over columns). A kernel without inner dimensions has teams of one.
//
// A thread takes `vector` points at a time along one dimension, an inner one of rows, the last
// outer one of the others. Its memory is read and written by wide accesses where indices allow it.
//
// Where the inner points of a thread are few and their number is known, their loops are unrolled,
// and what several stages load stays in registers: memory is read once and written once.
//
// A reduction to few results is cut into slices: blocks combine a slice each, and a second kernel
// combines those in a fixed order.
#pragma once

#include <cstdint>
#include <vector>

#include "loops/kernel.h"

namespace smelt::cuda {

// Where a scratch buffer lives.
enum class Home : uint8_t {
  none,       // no scratch
  registers,  // each thread reads what it wrote
  shared,     // of the block
  global,     // a piece of the workspace for each outer point in flight
};

struct Plan {
  bool columns = false;
  // Stages, inner points and instructions stay in the order of the loops: teams of one, no vectors.
  bool serial = false;
  // Some stage scans: the threads of a team take inner points in turns, one each.
  bool scans = false;
  int threads = 256;  // of a block
  int team = 1;
  int width = 1;  // of columns: the threads next to each other, each of another team

  int vector = 1;
  int vector_dim = -1;        // -1: none
  bool outer_vector = false;  // vector_dim is an outer dimension
  bool tail = false;          // the last vector along that dimension may have fewer points
  // The points of a vector are as far apart as a block has threads, along no one dimension: nothing
  // is accessed at once, but all that they load is asked for before anything waits for it.
  bool apart = false;

  // Where loads lie along another outer dimension than the last, a block has a tile of the two, and
  // such loads go through shared memory.
  int tile_dim = -1;
  std::vector<bool> tiled;  // per load

  int64_t steps = 0;          // of the unrolled loop over inner points; 0: it is not unrolled
  bool partial_step = false;  // the last of them has fewer points
  int slices = 1;
  int finish_team = 1;  // of the kernel that combines slices

  // Per instruction: does it depend on the inner point, on the place in the vector?
  std::vector<bool> inner, varies;
  std::vector<bool> wide;         // per access: the elements of a vector are accessed at once
  std::vector<int32_t> kept;      // per load: number of the registers it is kept in; -1: none
  std::vector<loops::Val> keeps;  // for each of those, the load that fills it
  std::vector<Home> homes;        // per buffer
  std::vector<bool> streamed;     // per buffer: not worth a place in the caches

  Size points;  // outer
  Size items;   // what teams compute one of: outer points, or vectors of them
  int items_per_block() const {
    return tile_dim >= 0 ? 1 : columns ? width : apart ? threads * vector : threads / team;
  }
};

struct PlanOptions {
  // As if kernels were large, for tests: vectors, and slices, of few points.
  bool as_if_large = false;
};
// Points of a tile along each of its dimensions, and threads along the one.
constexpr int kTile = 32, kTileThreads = 8;

Plan make_plan(const loops::Kernel& kernel, const PlanOptions& options = {});
// Of the kernel that combines the slices of another.
Plan finish_plan(const loops::Kernel& kernel, const Plan& plan);

// Must the inner points of some stage run one after the other, on one thread?
bool needs_order(const loops::Kernel& kernel);
// Does it write by nothing but sums, which threads can add at one place atomically?
bool adds_only(const loops::Kernel& kernel);
// Is no element written by two inner points of one outer point?
bool is_distinct(const loops::Kernel& kernel, const loops::Index& index);

}  // namespace smelt::cuda
