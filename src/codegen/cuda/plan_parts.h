// The parts of a plan that are decided one after the other.
#pragma once

#include "codegen/cuda/plan.h"

namespace smelt::cuda {

// Which instructions depend on a dimension of [first, last)? A reduction does so if `reduced`.
std::vector<bool> dependents(const loops::Kernel& kernel, int first, int last, bool reduced);

// How many points of a dimension a thread takes at once, and which accesses are wide then.
void choose_vector(const loops::Kernel& kernel, int dim, const PlanOptions& options, Plan& plan);
// Whether points are taken by tiles.
void choose_tiles(const loops::Kernel& kernel, const PlanOptions& options, Plan& plan);
// Whether a thread takes several points of a large kernel without vectors or tiles.
void choose_apart(const loops::Kernel& kernel, const PlanOptions& options, Plan& plan);
// Cuts a reduction to few results.
void choose_slices(const loops::Kernel& kernel, const PlanOptions& options, Plan& plan);
// What is unrolled, and kept from stage to stage.
void choose_registers(const loops::Kernel& kernel, Plan& plan);
// What passes by the caches.
void choose_streams(const loops::Kernel& kernel, Plan& plan);
// Where scratch buffers live.
void choose_homes(const loops::Kernel& kernel, Plan& plan);

}  // namespace smelt::cuda
