// Tensors whose shape depends on what is in others: x[mask], torch.where(mask). Ops may take them,
// since each run calls those on what it has; nobody may look at them.
#pragma once

#include <optional>

#include "capture/bytecode/trace/trace.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {

// As Trace::use(), for something that goes into a tensor op. True: there is such a tensor in it.
bool use_in_op(Trace& trace, Value value);
// Ends the graph: the run depends on such a tensor's shape.
void stop_at_shape(Trace& trace);
// Such a tensor's size at this dimension, or the product of all without one: a number that the
// program reads. Nothing: it is another kind of tensor.
std::optional<Result> read_size(Trace& trace, Value tensor, std::optional<int> dimension);
// tensor[key] is the same ops whatever the shapes of these are. For a store `item` is what is
// stored, which loses dimensions of size 1 at its front.
bool may_index(const Trace& trace, PyObject* tensor, PyObject* key, PyObject* item = nullptr);
// tensor[key] = item is tensor.index_put_((key,), item), with an item of such a shape, which keeps
// its dimensions then.
bool is_put(const Trace& trace, PyObject* tensor, PyObject* key, PyObject* item);

}  // namespace smelt::bytecode
