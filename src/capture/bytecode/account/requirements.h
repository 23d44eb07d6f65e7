// What a trace requires of a later call, in the order of the run: what lies behind the last
// checkpoint can be left out again.
#pragma once

#include <vector>

#include "capture/bytecode/nodes/node.h"

namespace smelt::bytecode {

// A guard on a node.
struct GuardEntry {
  Ref ref;
  uint16_t bits;
  bool truth;
};

struct Requirements {
  std::vector<GuardEntry> guards;
  std::vector<AbsentKey> absent;
  std::vector<TypeLookup> lookups;
  std::vector<TypeState> types;  // when the trace ended
  std::vector<AliasGuard> aliases;
  std::vector<Reading> readings;
  std::vector<Remembered> remembered;
};

}  // namespace smelt::bytecode
