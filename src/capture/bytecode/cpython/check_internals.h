// Whether this CPython is laid out as smelt knows it: asked once, when the module is loaded.
// docs/design/borrowed_internals.md lists what is borrowed, and where.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace smelt::bytecode {

// One sentence for each kind of private structure that is not as it should be; none: all is well.
// Leaves no error set. `broken`: the kind by this name is looked at as if it were laid out in
// another way, for tests.
std::vector<std::string> check_cpython(std::string_view broken);

// Set where a check has failed, of CPython or of PyTorch: no frame is followed then.
inline bool internals_differ = false;

}  // namespace smelt::bytecode
