// What code asks about the sizes of tensors that vary (account/varying.h): shapes whose elements are
// numbers like others, and indices that such numbers are part of.
#pragma once

#include <functional>
#include <optional>

#include "capture/bytecode/trace/trace.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {

// A tuple or torch.Size: what is in it can be read without its class being asked.
bool is_tuple_or_size(PyObject* object);

// tensor.shape, tensor.size(dim), tensor.numel(). Nothing: no size of it varies.
std::optional<Result> read_shape(Trace& trace, Value tensor);
std::optional<Result> read_varying_size(Trace& trace, Value tensor, long dim);
std::optional<Result> read_numel(Trace& trace, Value tensor);

// A tuple, list or torch.Size made of these elements, of which some may be numbers that vary.
// `made`, a new reference, tells which of them it is.
Result made_of(Trace& trace, std::span<const Value> elements, PyObject* made);
// Does the container have an element that may be another one in the next call?
bool has_lazy_elements(Trace& trace, Value container);
// a == b for two of these; nothing where their elements are no plain numbers.
std::optional<bool> equal_elements(Trace& trace, Value a, Value b);

// Calls something with the key of a tensor's item. PyTorch's indexing looks at sizes itself, and
// leaves out a slice that is all of its dimension: what it finds is guarded here. Numbers in the
// key that are sizes it gets as stand-ins.
PyObject* call_with_index(Trace& trace, Value tensor, Value key,
                          const std::function<PyObject*(PyObject* key)>& call);

}  // namespace smelt::bytecode
