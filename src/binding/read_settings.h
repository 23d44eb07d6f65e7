// The settings of smelt.compile, read from Python's objects. python/smelt/_settings.py has checked
// them, with messages for the user; an Error here names what it forgot.
#pragma once

#include <Python.h>

#include <string_view>

#include "base/settings.h"

namespace smelt {

// "native", "eager", "custom", or the name of a back end to compare with.
Engine read_engine(std::string_view name);
// A dict from names of options to their values; others stay as they are.
void read_options(PyObject* options, Settings& settings);

}  // namespace smelt
