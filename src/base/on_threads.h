// Work that is shared by threads which are made for it.
#pragma once

#include <cstddef>
#include <functional>

namespace smelt {

// body(0) ... body(count - 1), on this thread and on as many others as there are processors for, 16 in
// all at most; on fewer where the system gives no more. An exception of a body is thrown when all are
// done; the others are done all the same.
void on_threads(size_t count, const std::function<void(size_t)>& body);

}  // namespace smelt
