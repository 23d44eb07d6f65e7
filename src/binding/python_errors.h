// C++ exceptions as Python errors: where smelt's own types and PyTorch's callbacks hand over to
// CPython.
#pragma once

#include <Python.h>

namespace smelt {

// Sets the Python error for the C++ exception that is being handled. Throws nothing.
void set_python_error() noexcept;

// What `body` returns; nullptr with a Python error set if it throws.
template <class Body>
PyObject* without_exceptions(const Body& body) {
  try {
    return body();
  } catch (const std::exception&) {
    set_python_error();
    return nullptr;
  }
}

}  // namespace smelt
