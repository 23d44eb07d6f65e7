// Threads that compile while calls go on, as Python sees them: it ends them before itself, and holds
// them up where it forks.
#include <pybind11/pybind11.h>

#include "background/background.h"
#include "binding/binding.h"

namespace py = pybind11;

namespace smelt {

void bind_background(py::module_& m) {
  // None with the GIL: jobs may call Python code.
  using Release = py::call_guard<py::gil_scoped_release>;
  m.def("background_pending", &background::pending, "Graphs that wait for code, or get it now.");
  m.def("background_wait", &background::wait, Release());
  m.def("background_hold", &background::hold, Release());
  m.def("background_let_go", &background::let_go, py::arg("in_child"), Release());
  m.def("background_end", &background::end, Release());
}

}  // namespace smelt
