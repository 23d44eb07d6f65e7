// Memory pools for CUDA graphs: torch.cuda.MemPool, held from C++.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "base/error.h"
#include "binding/binding.h"
#include "bridge/machine/capture_pool.h"
#include "bridge/machine/graphed_runs.h"

namespace py = pybind11;

namespace smelt {
namespace {

// An object of smelt._cuda_graphs.Pool. Programs run without the GIL as well.
class PythonPool final : public CapturePool {
 public:
  explicit PythonPool(py::object pool) : pool_(std::move(pool)) {}
  ~PythonPool() override {
    if (Py_IsInitialized() == 0) {  // Python is gone, and the memory with it
      pool_.release();
      return;
    }
    const py::gil_scoped_acquire gil;
    py::object(std::move(pool_));
  }
  void enter() override { call("enter"); }
  void leave() override { call("leave"); }

 private:
  void call(const char* method) {
    const py::gil_scoped_acquire gil;
    try {
      pool_.attr(method)();
    } catch (const py::error_already_set& error) {
      throw Error(error.what());
    }
  }

  py::object pool_;
};

std::unique_ptr<CapturePool> make_pool(int device) {
  const py::gil_scoped_acquire gil;
  try {
    return std::make_unique<PythonPool>(
        py::module_::import("smelt._cuda_graphs").attr("Pool")(device));
  } catch (const py::error_already_set& error) {
    throw Error(error.what());
  }
}

py::dict read_counts() {
  const GraphedRuns::Counts counts = GraphedRuns::counts();
  py::dict all;
  all["captured"] = counts.captured;
  all["launched"] = counts.launched;
  all["refused"] = counts.refused;
  all["reasons"] = counts.reasons;
  return all;
}

}  // namespace

void bind_capture_pools(pybind11::module_& m) {
  set_capture_pools(&make_pool);
  m.def("cuda_graphs", &read_counts,
        "How many programs have become CUDA graphs, and why others not.");
  m.def("forget_cuda_graphs", &GraphedRuns::forget_counts);
}

}  // namespace smelt
