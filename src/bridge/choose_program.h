// Which program a traced piece of code becomes. Whatever stands against a quicker one is a
// Decision, whose sentence is the reason for which the log is run op by op.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "bridge/traced_program.h"
#include "compile/compile.h"

namespace smelt {

enum class WantedProgram : uint8_t {
  op_by_op,
  graph,        // a graph if the recorder can make one
  fastest,      // whichever is faster to run
  interpreted,  // the graph's kernels run by the loop interpreter, if there can be a graph
};

// Counts as a graph in smelt.stats(). `is_stage`: nobody but other stages sees how its outputs are
// computed from each other. Not with the GIL held: it may run the autograd engine.
std::shared_ptr<const TracedProgram> choose_program(const OpLog& log,
                                                    const LogProgram::Interface& interface,
                                                    WantedProgram want,
                                                    const CompileOptions& options = {},
                                                    bool is_stage = false);

inline std::shared_ptr<const TracedProgram> choose_program(const OpLog& log,
                                                           std::span<const LogValue> inputs,
                                                           std::span<const LogValue> outputs,
                                                           WantedProgram want) {
  return choose_program(log, LogProgram::Interface{inputs, outputs, {}, {}, {}, {}}, want);
}

}  // namespace smelt
