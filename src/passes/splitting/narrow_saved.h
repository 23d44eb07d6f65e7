// Values of a joint graph that hold less than their dtype could get a narrower form.
#pragma once

#include "graph/graph.h"

namespace smelt {

// Behind each draw of zeros and ones, and behind the places of a pooling's maxima, stand two casts,
// to the narrowest dtype that holds them and back, and all that read the value read those: so the
// narrow form can be saved for the backward in its place. True: the graph changed. Stands before
// split_joint, and nowhere else: for a graph without a backward there is nothing to gain.
bool narrow_saved(Graph& joint);

}  // namespace smelt
