// Points by tiles, for loads that lie along another dimension than the stores do. A block has a
// tile of kTile by kTile points. First its threads load along the one dimension and put what they
// find into shared memory; then they compute and store along the other, and find it there. A column
// of shared memory more than a tile has keeps threads next to each other out of each other's way.
#include "codegen/cuda/emitter.h"

namespace smelt::cuda {

// The block's tile: where it begins along both dimensions, and the place in the others.
void Emitter::find_tile() {
  const int last = outer_ - 1;
  const std::string tile = std::to_string(kTile);
  line("const int across = threadIdx.x % " + tile + ";");
  line("const int beside = threadIdx.x / " + tile + ";");
  line("UIndex rest = blockIdx.x;");
  const auto take = [&](const std::string& name, const std::string& count) {
    line("const Index " + name + " = static_cast<Index>(rest % static_cast<UIndex>(" + count +
         "));");
    line("rest /= static_cast<UIndex>(" + count + ");");
  };
  const auto tiles = [&](int dim) {
    return "((" + size_text(kernel_.extent(dim)) + " + " + std::to_string(kTile - 1) + ") / " +
           tile + ")";
  };
  take("tile_last", tiles(last));
  take("tile_other", tiles(plan_.tile_dim));
  for (int dim = last; dim-- > 0;)
    if (dim != plan_.tile_dim) take("i" + std::to_string(dim), size_text(kernel_.extent(dim)));
}

// The two dimensions, by places in the tile. What lies behind their ends is left out.
void Emitter::open_tile(const char* other, const char* last) {
  open("SMELT_UNROLL for (int turn = 0; turn < " + std::to_string(kTile / kTileThreads) +
       "; ++turn)");
  line("const int down = beside + turn * " + std::to_string(kTileThreads) + ";");
  std::string outside;
  const auto declare = [&](int dim, const char* tile, const char* place) {
    const std::string name = "i" + std::to_string(dim);
    line("const Index " + name + " = " + tile + " * " + std::to_string(kTile) + " + " + place +
         ";");
    if (loops::even_quotient(kernel_.extent(dim), kTile)) return;
    outside += (outside.empty() ? "" : " || ") + name + " >= " + size_text(kernel_.extent(dim));
  };
  declare(plan_.tile_dim, "tile_other", other);
  declare(outer_ - 1, "tile_last", last);
  if (!outside.empty()) line("if (" + outside + ") continue;");
}

void Emitter::load_tiles() {
  for (size_t v = 0; v < kernel_.insts.size(); ++v)
    if (plan_.tiled[v])
      line("__shared__ " + memory_type(kernel_.insts[v].dtype) + " tile" + std::to_string(v) + "[" +
           std::to_string(kTile) + "][" + std::to_string(kTile + 1) + "];");
  open_tile("across", "down");
  for (size_t v = 0; v < kernel_.insts.size(); ++v)
    if (plan_.tiled[v])
      line("tile" + std::to_string(v) +
           "[down][across] = " + element_text(kernel_.insts[v], false) + ";");
  close();
  line("__syncthreads();");
}

void Emitter::write_tiles() {
  find_tile();
  load_tiles();
  open_tile("down", "across");
  write_outer(kernel_.stages[0], true);
  close();
}

}  // namespace smelt::cuda
