// Why a graph ended: one row per reason in breaks.def.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace smelt::bytecode {

enum class BreakReason : uint8_t {
#define SMELT_BREAK(name, sentence, remedy) name,
#include "capture/bytecode/nodes/breaks.def"
#undef SMELT_BREAK
};

struct Break {
  BreakReason reason = BreakReason::internal;
  std::string detail;  // what {} in the sentence stands for
  std::string file;    // the user's line
  int line = 0;
  std::string function;
  std::string module;     // "GPT2Attention (transformer.h.0.attn)", if it is in one
  std::string called_at;  // "train.py:31": the user's line, if file is a library's

  std::string name() const;      // "data_dependent"
  std::string sentence() const;  // "a Python value that depends on a tensor's contents (item)"
  std::string remedy() const;
  // "model.py:12, in Model.forward: <sentence>. <Remedy>."
  std::string str() const;
};

// A place in a run of a frame from its start on.
struct Place {
  int offset = 0;
  int turns = 0;  // how often loops of the frame were begun anew before
  auto operator<=>(const Place&) const = default;
};
// Calls in which traces of a frame further out have stopped, somewhere inside: as a root this
// frame's next trace ends in front of them. Nothing: it turned out otherwise.
using ExpectedBreaks = std::map<Place, std::optional<Break>>;

}  // namespace smelt::bytecode
