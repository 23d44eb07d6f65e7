// Is a Program well formed?
#pragma once

#include "runtime/program.h"

namespace smelt {

// An InternalError says what is wrong: a register that is read before anything is in it or after
// its release, a kernel without one of its buffers or parameters, a buffer of the arena that is not
// there.
void verify(const Program& program);

}  // namespace smelt
