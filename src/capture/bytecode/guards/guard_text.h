// Guards in words.
#pragma once

#include <string>
#include <vector>

#include "capture/bytecode/guards/guard_instructions.h"

namespace smelt::bytecode {

// What paths are told from.
struct GuardNames {
  std::vector<Node> nodes;
  Object code;
};

// "self.scale: 2.0": what the check wants.
std::string guard_line(const GuardNames& names, const GuardInstruction& check);
std::string lookup_line(const TypeLookup& lookup);
// "self.scale: was 2.0, is 3.0": why the instruction failed; `registers` as it left them.
std::string guard_failure(const GuardNames& names, const GuardInstruction& failed,
                          PyObject* const* registers);
std::string lookup_failure(const TypeLookup& lookup, PyObject* found);

}  // namespace smelt::bytecode
