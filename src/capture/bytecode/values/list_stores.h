// Changes of lists of whose elements the trace keeps account one by one. In a list that it has made,
// numbers that may be others in the next call stay so (nodes/lazy_elements.h).
#pragma once

#include <optional>

#include "capture/bytecode/trace/trace.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {

// list[key] = item, list[first:last] = items of as many; without an item: del list[key]. Whether it
// was done, with an error set if not; nothing: it is no such list or place.
std::optional<bool> put_in_list(Trace& trace, Value list, Value key, Value item);

// list.pop(index), list.insert(index, item), list.reverse(), where a number would have to be known
// else. Nothing: it is no such list, or there is none.
std::optional<Result> pop_of_made_list(Trace& trace, Value list, Value index);
std::optional<bool> insert_in_made_list(Trace& trace, Value list, Value index, Value item);
std::optional<bool> reverse_made_list(Trace& trace, Value list);

}  // namespace smelt::bytecode
