// smelt._native: what the Python package smelt is made of.
#include <pybind11/pybind11.h>
#include <torch/csrc/utils/pybind.h>

#include "base/counters.h"
#include "base/error.h"
#include "base/log.h"
#include "binding/binding.h"
#include "graph/graph.h"
#include "passes/passes.h"
#include "smelt/smelt.h"

namespace py = pybind11;

namespace {

py::dict read_counters() {
  py::dict all;
  for (const smelt::CounterRow& row : smelt::all_counters()) all[py::str(row.name)] = row.value;
  return all;
}

}  // namespace

PYBIND11_MODULE(_native, m) {
  auto error = py::register_exception<smelt::Error>(m, "Error", PyExc_RuntimeError);
  py::register_exception<smelt::RecordError>(m, "RecordError", error.ptr());
  py::register_exception<smelt::BreakError>(m, "BreakError", error.ptr());
  py::register_exception<smelt::InternalError>(m, "InternalError", PyExc_AssertionError);
  m.attr("version") = SMELT_VERSION;
  m.def("counters", &read_counters);
  m.def("reset_counters", &smelt::reset_counters);
  m.def("set_log", [](const std::string& categories) { smelt::set_log(categories); });
  m.def("built_for_torch", &smelt::built_for_torch);
  m.def(
      "normalise_graph", [](const std::string& text) { return smelt::Graph::parse(text).str(); },
      "The text of a graph, parsed and printed again.");
  smelt::bind_record(m);
  smelt::bind_infer(m);
  smelt::bind_tensors(m);
  smelt::bind_compile(m);
}
