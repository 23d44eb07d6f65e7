// Which calls ask for the default dtype (torch.get_default_dtype()) while they run.
#pragma once

#include "graph/graph.h"

namespace smelt {

// Does a call of the node through the dispatcher give something else under another default dtype?
// So it is where integers meet a Python float, or become floats, and no argument says which. What
// makes tensors of nothing is called with the dtype of its result, and depends on none.
bool asks_default_float(const Graph& graph, const Node& node);

}  // namespace smelt
