// What a trace has stored in objects that existed before, looked up while it runs. The __hash__ and
// __eq__ of a key were followed when the program itself used it; here they run unseen.
#pragma once

#include "capture/bytecode/account/overlay.h"

namespace smelt::bytecode {

std::optional<Ref> find_stored(const Overlay& overlay, PyObject* key);
// Of a list.
std::optional<Ref> find_stored_item(const Overlay& overlay, Py_ssize_t index);
void store(Overlay& overlay, PyObject* key, Ref ref);

}  // namespace smelt::bytecode
