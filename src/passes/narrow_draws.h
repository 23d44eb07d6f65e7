// Draws of a joint graph that are 0 or 1 get a form of one byte per element.
#pragma once

#include "graph/graph.h"

namespace smelt {

// Behind each draw of zeros and ones in a wider type stand two casts, to bool and back, and all
// that read the draw read those: so the bytes can be saved for the backward in its place. True: the
// graph changed. Stands before split_joint, and nowhere else: for a graph without a backward there
// is nothing to gain.
bool narrow_draws(Graph& joint);

}  // namespace smelt
