#include "cuda_graphs/graph_driver.h"

#include <dlfcn.h>

#include <type_traits>

#include "base/error.h"

namespace smelt::cuda_graphs {
namespace {

struct Opened {
  GraphDriver driver{};
  std::string problem;  // empty: none
};

Opened open_driver() {
  Opened opened;
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    opened.problem = "there is no CUDA driver";
    return opened;
  }
  const auto find_any = [&](auto& function, const char* name) {
    using Type = std::remove_reference_t<decltype(function)>;
    function = reinterpret_cast<Type>(dlsym(library, name));
    return function != nullptr;
  };
  const auto find = [&](auto& function, const char* name) {
    if (!find_any(function, name)) opened.problem = std::string("the CUDA driver has no ") + name;
  };
  GraphDriver& driver = opened.driver;
  find(driver.get_error_string, "cuGetErrorString");
  find(driver.context_current, "cuCtxGetCurrent");
  find(driver.pointer_attribute, "cuPointerGetAttribute");
  find(driver.stream_create, "cuStreamCreate");
  find(driver.stream_destroy, "cuStreamDestroy_v2");
  find(driver.stream_synchronize, "cuStreamSynchronize");
  find(driver.stream_is_capturing, "cuStreamIsCapturing");
  find(driver.stream_begin_capture, "cuStreamBeginCapture_v2");
  find(driver.stream_end_capture, "cuStreamEndCapture");
  const bool has_v2 = find_any(driver.capture_info_v2, "cuStreamGetCaptureInfo_v2");
  if (!has_v2) find(driver.capture_info_v3, "cuStreamGetCaptureInfo_v3");
  find(driver.graph_nodes, "cuGraphGetNodes");
  find(driver.graph_destroy, "cuGraphDestroy");
  find(driver.graph_instantiate, "cuGraphInstantiateWithFlags");
  find(driver.exec_destroy, "cuGraphExecDestroy");
  find(driver.graph_launch, "cuGraphLaunch");
  find(driver.node_type, "cuGraphNodeGetType");
  find(driver.kernel_params, "cuGraphKernelNodeGetParams_v2");
  find(driver.memset_params, "cuGraphMemsetNodeGetParams");
  find(driver.memcpy_params, "cuGraphMemcpyNodeGetParams");
  find(driver.set_kernel_params, "cuGraphExecKernelNodeSetParams_v2");
  find(driver.set_memset_params, "cuGraphExecMemsetNodeSetParams");
  find(driver.set_memcpy_params, "cuGraphExecMemcpyNodeSetParams");
  find(driver.function_param, "cuFuncGetParamInfo");
  find(driver.kernel_param, "cuKernelGetParamInfo");
  find(driver.function_name, "cuFuncGetName");
  find(driver.kernel_name, "cuKernelGetName");
  return opened;
}

const Opened& opened_driver() {
  static const Opened opened = open_driver();
  return opened;
}

}  // namespace

const GraphDriver* graph_driver() {
  const Opened& opened = opened_driver();
  return opened.problem.empty() ? &opened.driver : nullptr;
}

const std::string& driver_problem() { return opened_driver().problem; }

Graph graph_of_capture(Stream stream) {
  const GraphDriver& driver = *graph_driver();
  int status = 0;
  uint64_t id = 0;
  Graph graph = nullptr;
  const Node* last = nullptr;
  const void* edges = nullptr;
  size_t count = 0;
  check(driver.capture_info_v2
            ? driver.capture_info_v2(stream, &status, &id, &graph, &last, &count)
            : driver.capture_info_v3(stream, &status, &id, &graph, &last, &edges, &count),
        "cuStreamGetCaptureInfo");
  if (graph == nullptr) throw Error("the capture has ended early");
  return graph;
}

void check(Status status, const char* what) {
  if (status == 0) return;
  const char* text = nullptr;
  graph_driver()->get_error_string(status, &text);
  throw Error(std::string(what) + ": " + (text ? text : "error " + std::to_string(status)));
}

}  // namespace smelt::cuda_graphs
