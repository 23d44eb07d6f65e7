#include "compile/peak_memory.h"

#include <algorithm>

#include "compile/blocks.h"

namespace smelt {
namespace {

struct Piece {
  int64_t bytes = 0;
  int32_t first = 0, last = 0;
  std::string text;  // the type, and who made it
};

bool is_in_arena(const Program& program, const Block& block) {
  const std::vector<int32_t>& arena = program.steps[block.made[0].step].arena;
  if (arena.empty() || arena[block.made[0].result] < 0) return false;
  const std::vector<int64_t>& offsets = program.arena.offsets;
  return !offsets.empty() && offsets[arena[block.made[0].result]] >= 0;
}

std::vector<Piece> pieces_of(const Program& program, const std::vector<Block>& blocks) {
  const std::vector<int64_t> hints = program.symbols.hints();
  std::vector<Piece> pieces;
  if (program.arena.bytes > 0)
    pieces.push_back({.bytes = program.arena.bytes,
                      .first = 0,
                      .last = static_cast<int32_t>(program.steps.size()),
                      .text = "the arena"});
  for (const Block& block : blocks) {
    if (is_in_arena(program, block)) continue;
    const TensorType& type = type_of(program, block);
    pieces.push_back({.bytes = type.numel().evaluate(hints) * bytes_of(type.dtype),
                      .first = block.first,
                      .last = block.last,
                      .text = type.str() + " of " + program.steps[block.made[0].step].op});
  }
  return pieces;
}

}  // namespace

std::string describe_peak(const Graph& graph, const Schedule& schedule, const Program& program) {
  const std::vector<Piece> pieces = pieces_of(program, blocks_of(graph, schedule, program));
  const auto is_held = [](const Piece& piece, size_t step) {
    return piece.first <= static_cast<int32_t>(step) && static_cast<int32_t>(step) <= piece.last;
  };
  int64_t peak = 0;
  size_t at = 0;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    int64_t held = 0;
    for (const Piece& piece : pieces) held += is_held(piece, i) ? piece.bytes : 0;
    if (held > peak) at = i;
    peak = std::max(peak, held);
  }
  if (peak == 0) return "none\n";
  std::string text = std::to_string(peak) + " bytes at " + program.steps[at].op + "\n";
  for (const Piece& piece : pieces)
    if (is_held(piece, at)) text += "  " + std::to_string(piece.bytes) + "  " + piece.text + "\n";
  return text;
}

}  // namespace smelt
