// The kernels of a schedule as code.
#pragma once

#include <vector>

#include "compile/compile.h"

namespace smelt {

// One per kernel of the schedule.
std::vector<KernelImage> make_kernels(const Schedule& schedule, const CompileOptions& options,
                                      const SymbolTable& symbols, Record& record);

}  // namespace smelt
