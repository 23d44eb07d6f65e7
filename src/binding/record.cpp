// smelt.record for Python: the function runs once, under a recorder, on the user's own objects.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <chrono>
#include <mutex>

#include "base/error.h"
#include "binding/binding.h"
#include "binding/swapped_objects.h"
#include "bridge/recorded_graph.h"
#include "capture/dispatch/recorder.h"
#include "diagnostics/counters.h"

namespace py = pybind11;

namespace smelt {
namespace {

// One Python recording at a time: the twins stand behind objects that other threads see as well. A
// thread that waits does not hold the GIL.
class Turn {
 public:
  Turn() {
    if (Recorder::current())
      throw Error("smelt.record can't be used inside a function that is being recorded");
    py::gil_scoped_release nogil;
    lock_ = std::unique_lock(mutex(), std::chrono::seconds(120));
    if (!lock_.owns_lock())
      throw Error(
          "another thread has been recording for two minutes; does the function it records wait "
          "for this one?");
  }

 private:
  static std::timed_mutex& mutex() {
    static std::timed_mutex mutex;
    return mutex;
  }
  std::unique_lock<std::timed_mutex> lock_;
};

std::vector<at::Tensor> to_tensors(const py::sequence& objects) {
  std::vector<at::Tensor> tensors;
  for (const py::handle& object : objects)
    tensors.push_back(object.is_none() ? at::Tensor() : THPVariable_Unpack(object.ptr()));
  return tensors;
}

// Made of a Python number that is symbolic, the tensor carries it as an attribute.
std::optional<at::Scalar> symbolic_number(const at::Tensor& tensor) {
  py::gil_scoped_acquire gil;
  const auto object = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
  const py::object number = py::getattr(object, "_wrapped_number", py::none());
  if (torch::is_symint(number)) return at::Scalar(number.cast<c10::SymInt>());
  if (torch::is_symfloat(number)) return at::Scalar(number.cast<c10::SymFloat>());
  if (torch::is_symbool(number)) return at::Scalar(number.cast<c10::SymBool>());
  return std::nullopt;
}

RecorderOptions make_options(SwappedObjects& swapped, const py::function& where,
                             const py::sequence& generators, int64_t fail_at) {
  RecorderOptions options;
  options.fail_at = fail_at;
  for (const py::handle& generator : generators)
    options.generators.push_back(reinterpret_cast<THPGenerator*>(generator.ptr())->cdata);
  options.where = [where] {
    py::gil_scoped_acquire gil;
    return where().cast<std::string>();
  };
  options.number = symbolic_number;
  options.on_lift = [&swapped](const at::Tensor& real, const at::Tensor& twin) {
    py::gil_scoped_acquire gil;
    if (!swapped.swap(real, twin) && real.requires_grad())
      Recorder::current()->refuse(
          "a tensor that requires grad has weak references in PyTorch, so that its .grad can't be "
          "followed");
  };
  return options;
}

// Some refusals show only as an exception of PyTorch's, from code that asks no op: the reason, by a
// part of its message.
const char* hidden_reason(const py::error_already_set& error) {
  static constexpr const char* kMemory =
      "the function reads the memory of a tensor (numpy(), tolist(), data_ptr(), a copy or a "
      "pickle of it), and there is none while a program is written down";
  static constexpr const char* kArithmetic =
      "the function does with a dynamic size what only a plain number can do; int(size) makes it "
      "one and pins it";
  static constexpr std::pair<const char*, const char*> kMessages[] = {
      {"Cannot access data pointer of Tensor", kMemory},
      {"its data is not allocated yet", kMemory},
      {"unallocated storage", kMemory},
      {"invalid python storage", kMemory},
      {"_SymNode' object has no attribute", kArithmetic},
      {"SymInt", kArithmetic},
      {"dispatch_on_subclass called with NO overloaded args", kArithmetic},
      {"NestedTensorImpl doesn't support sizes", "the function makes a nested tensor"},
      {"DispatchKey DeferredInit doesn't correspond to a device",
       "x.new_tensor() and x.new() do not work while a program is written down; use torch.tensor() "
       "with device=x.device"},
  };
  const std::string message = error.what();
  for (const auto& [part, reason] : kMessages)
    if (message.find(part) != std::string::npos) return reason;
  return nullptr;
}

[[noreturn]] void raise_error(const std::string& message) {
  py::gil_scoped_acquire gil;
  PyErr_SetString(py::module_::import("smelt._native").attr("Error").ptr(), message.c_str());
  python_error error;
  error.persist();
  throw error;
}

std::vector<const Backend*> backends_named(const std::string& backend) {
  if (auto found = find_backends(backend)) return std::move(*found);
  throw Error("smelt.record has no back end '" + backend +
              "'; there are 'eager', 'native' and 'interpret'");
}

// Runs call() under a recorder. `arguments`: the tensors that run() will be given again; `known`:
// further ones the function may reach, so that they are followed from its first line on.
RecordedGraph record_python(const py::function& call, const py::sequence& arguments,
                            const std::vector<DynamicDims>& dynamic, const py::sequence& known,
                            const py::sequence& generators, const py::function& where,
                            int64_t fail_at, const std::string& backend) {
  const Turn turn;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<at::Tensor> argument_tensors = to_tensors(arguments),
                                known_tensors = to_tensors(known);
  SwappedObjects swapped;
  CompileOptions compile;
  compile.schedule.backends = backends_named(backend);
  RecorderOptions options = make_options(swapped, where, generators, fail_at);
  options.only_calls = compile.schedule.backends.empty();
  auto recorder = std::make_shared<Recorder>(std::move(options));
  Recorded recorded;
  try {
    RecordingScope scope(recorder);
    for (size_t i = 0; i < argument_tensors.size(); ++i)
      recorder->add_argument(argument_tensors[i], dynamic[i]);
    for (const at::Tensor& tensor : known_tensors) recorder->twin_of(tensor);
    const std::vector<at::Tensor> outputs = to_tensors(call());
    recorded = recorder->finish(outputs);
  } catch (py::error_already_set& error) {
    if (const char* reason = hidden_reason(error)) recorder->give_up(reason);
    if (!recorder->refusal()) throw;  // what eager raises
    const py::object type = py::module_::import("smelt._native").attr("RecordError");
    py::raise_from(error, type.ptr(), recorder->refusal()->c_str());
    throw py::error_already_set();
  }
  swapped.restore();
  count(Counter::record_ns, (std::chrono::steady_clock::now() - start).count());
  return RecordedGraph(std::make_shared<const RecordedGraph::Impl>(std::move(recorded), compile));
}

py::list run_graph(const RecordedGraph& graph, const py::sequence& arguments) {
  const std::vector<at::Tensor> tensors = to_tensors(arguments);
  std::vector<at::Tensor> outputs;
  {
    py::gil_scoped_release nogil;
    outputs = graph.run(tensors);
  }
  py::list results;
  for (const at::Tensor& output : outputs)
    results.append(output.defined() ? py::reinterpret_steal<py::object>(THPVariable_Wrap(output))
                                    : py::none());
  return results;
}

}  // namespace

void bind_record(py::module_& m) {
  py::class_<RecordedGraph>(m, "Graph")
      .def("run", &run_graph)
      .def("text", &RecordedGraph::str)
      .def("explain", &RecordedGraph::explain)
      .def("size", &RecordedGraph::size)
      .def("hash", [](const RecordedGraph& graph) { return graph.impl().graph.hash(); })
      .def("program",
           [](const RecordedGraph& graph) { return graph.impl().program->program().str(); });
  set_raise(&raise_error);
  m.def("record", &record_python);
  m.def("is_recording", [] { return Recorder::current() != nullptr; });
}

}  // namespace smelt
