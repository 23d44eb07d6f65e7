// Versions of CPython whose instructions smelt does not know: it leaves all frames to CPython.
#include "capture/bytecode/interpret/instruction_handlers.h"

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030D0000

namespace smelt::bytecode {

bool InstructionHandlers::supports_this_python() { return false; }
bool InstructionHandlers::take_prefix(int, int) { return false; }
InstructionHandlers::Flow InstructionHandlers::execute(int, int) {
  return unsupported("of an unknown version");
}

}  // namespace smelt::bytecode

#endif
