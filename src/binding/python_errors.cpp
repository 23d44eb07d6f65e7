#include "binding/python_errors.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "base/error.h"
#include "capture/bytecode/cpython/object.h"

namespace py = pybind11;

namespace smelt {
namespace {

using bytecode::Object;

// One of the module's own classes of errors.
void set_own_error(const char* type, const std::exception& error) {
  const Object module = Object::steal(PyImport_ImportModule("smelt._native"));
  const Object found = Object::steal(module ? PyObject_GetAttrString(module.get(), type) : nullptr);
  if (found) PyErr_SetString(found.get(), error.what());
}

void translate() {
  try {
    throw;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const BreakError& error) {
    set_own_error("BreakError", error);
  } catch (const RecordError& error) {
    set_own_error("RecordError", error);
  } catch (const Error& error) {
    set_own_error("Error", error);
  } catch (const InternalError& error) {
    set_own_error("InternalError", error);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
  }
}

}  // namespace

void set_python_error() noexcept {
  try {
    translate();
  } catch (const std::exception& problem) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_RuntimeError, problem.what());
  }
}

}  // namespace smelt
