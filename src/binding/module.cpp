// smelt._native: what the Python package smelt is made of.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "binding/binding.h"
#include "diagnostics/counters.h"
#include "diagnostics/log.h"
#include "diagnostics/log_sink.h"
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

// Lines that wait for Python. A stage that logs may be in the middle of a trace, where no other
// Python code can run.
struct KeptLines {
  std::mutex mutex;
  std::condition_variable arrived;
  std::vector<std::pair<std::string, std::string>> lines;
};

KeptLines& kept_lines() {
  static auto* kept = new KeptLines;  // threads may log while the process ends
  return *kept;
}

void keep_log_lines(bool keep) {
  if (!keep) return smelt::set_log_sink({});
  smelt::set_log_sink([](std::string_view category, const std::string& message) {
    KeptLines& kept = kept_lines();
    const std::scoped_lock lock(kept.mutex);
    kept.lines.emplace_back(category, message);
    kept.arrived.notify_one();
  });
}

std::vector<std::pair<std::string, std::string>> take_log_lines(double seconds) {
  const py::gil_scoped_release release;
  KeptLines& kept = kept_lines();
  std::unique_lock lock(kept.mutex);
  kept.arrived.wait_for(lock, std::chrono::duration<double>(seconds),
                        [&] { return !kept.lines.empty(); });
  return std::exchange(kept.lines, {});
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
  m.def("enabled_log", &smelt::enabled_log);
  m.def("keep_log_lines", &keep_log_lines,
        "Log lines are kept to be taken; False: they go to stderr.");
  m.def("take_log_lines", &take_log_lines, py::arg("seconds") = 0.0,
        "[(category, message)] since the last time; waits so long for the first.");
  m.def("pass_names", [] {
    std::vector<std::string> names;
    for (const smelt::PassInfo& pass : smelt::all_passes()) names.emplace_back(pass.name);
    return names;
  });
  m.def(
      "normalise_graph", [](const std::string& text) { return smelt::Graph::parse(text).str(); },
      "The text of a graph, parsed and printed again.");
  smelt::bind_record(m);
  smelt::bind_infer(m);
  smelt::bind_tensors(m);
  smelt::bind_compile(m);
  smelt::bind_pass_timer();
  smelt::bind_self_test(m);
  smelt::bind_capture_pools(m);
  smelt::bind_background(m);
}
