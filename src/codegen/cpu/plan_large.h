// The parts of a plan that only large kernels have.
#pragma once

#include "codegen/cpu/plan.h"

namespace smelt::cpu {

// Stores past the caches. What is written to a cache line is first read from memory, although all
// of it is overwritten; and a result that is larger than the caches is gone from them before
// anybody reads it. Whole vectors at whole lines need neither.
void choose_streams(const loops::Kernel& kernel, const loops::Kernel& likely,
                    const CpuOptions& options, const HostTarget& host, Plan& plan);

// Loads that ask for what lies ahead, in kernels that read more than the caches hold: while the
// arithmetic of one line goes on, the next ones are on their way.
void choose_prefetches(const loops::Kernel& kernel, const CpuOptions& options,
                       const HostTarget& host, Plan& plan);

// Slices of a reduction to few results. Its outer points leave the threads nothing to share, so an
// inner dimension is cut: units combine the points of a slice each, and when all are done the
// slices are combined in order. Their number depends on the kernel only, and so does the result.
void choose_slices(const loops::Kernel& kernel, const CpuOptions& options, Plan& plan);

}  // namespace smelt::cpu
