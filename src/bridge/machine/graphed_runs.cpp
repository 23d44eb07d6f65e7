// A program's way to its graph: a few runs as it is; then three captures (graph_capture.h), of
// which the last becomes the graph; then one run both ways, whose results are compared; then, where
// that is asked for, a few runs each way against the clock.
//
// The comparison is a check of address_words.h on real data: everything that stood in for inputs
// and outputs, and the fresh outputs themselves, are filled with ones first, so that a place which
// was missed gives NaN, and behind each output there is room that must stay as it was.
#include "bridge/machine/graphed_runs.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/equal.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>

#include "bridge/machine/graph_capture.h"
#include "bridge/machine/host_steps.h"
#include "bridge/machine/linked_program.h"
#include "bridge/machine/random_words.h"
#include "diagnostics/log.h"

namespace smelt {
namespace {

constexpr int kRunsBefore = 3;    // libraries have chosen their kernels by then
constexpr int kMostMisfits = 16;  // in a row
constexpr int kLooks = 2;         // of these are timed, where graphs have to be quicker
constexpr int kTimedRuns = 5;     // each way
constexpr double kGain = 0.97;    // of the time that it takes as it is
// Where the host needs less than such a part of a run, it is ahead of the device, and is not waited
// for.
constexpr double kHostPart = 0.6;
// What a program may take to find out whether a graph is quicker, and the graphs of a stream then
// keep, where nobody has asked for graphs.
constexpr int64_t kMostExtra = 256 << 20;
constexpr int64_t kGuard = 1 << 16;  // bytes behind an output that is compared

std::atomic<int64_t> captured_count{0}, launched_count{0}, refused_count{0};
std::mutex reasons_mutex;
std::vector<std::string> latest_reasons;

void* current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(device).native_handle();
}

bool is_capturing(void* stream) {
  int status = 0;
  return cuda_graphs::graph_driver()->stream_is_capturing(static_cast<cuda_graphs::Stream>(stream),
                                                          &status) != 0 ||
         status != 0;
}

void synchronize(void* stream) {
  cuda_graphs::check(
      cuda_graphs::graph_driver()->stream_synchronize(static_cast<cuda_graphs::Stream>(stream)),
      "cuStreamSynchronize");
}

// Kernels are chosen by what an address is a multiple of, up to this.
uint64_t alignment_of(uint64_t address) {
  constexpr uint64_t kMost = 256;
  return address == 0 ? kMost : std::min(address & (~address + 1), kMost);
}

// Of its first element.
uint64_t address_of(const at::Tensor& tensor) {
  return reinterpret_cast<uint64_t>(tensor.storage().data()) +
         static_cast<uint64_t>(tensor.storage_offset()) * tensor.itemsize();
}

c10::Storage new_storage(uint64_t bytes, c10::Allocator* allocator) {
  return c10::Storage(c10::Storage::use_byte_size_t{}, bytes, allocator->allocate(bytes), allocator,
                      /*resizable=*/true);
}

at::Tensor tensor_in(const c10::Storage& storage, at::IntArrayRef sizes, at::IntArrayRef strides,
                     int64_t offset, c10::ScalarType dtype) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA),
      c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

at::Tensor bytes_of(const c10::Storage& storage) {
  const auto bytes = static_cast<int64_t>(storage.nbytes());
  return tensor_in(storage, {bytes}, {1}, 0, c10::kByte);
}

// For what is computed beside the program.
struct BelowAutograd {
  at::NoGradGuard no_grad;
  c10::impl::ExcludeDispatchKeyGuard below{c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                           c10::autocast_dispatch_keyset};
};

void fill_with_ones(const at::Tensor& bytes) { bytes.fill_(0xff); }

// Far more than rounding, and far less than what a wrong address or number does.
constexpr double kNearly = 1e-2;

// The largest distance of two elements.
double distance(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 || !a.is_floating_point()) return 0;
  return a.to(c10::kDouble).sub(b.to(c10::kDouble)).abs().max().item().toDouble();
}

// Bit by bit; or, where kernels add in another order each time, up to that distance.
bool is_same(const at::Tensor& a, const at::Tensor& b, double most) {
  if (a.numel() == 0) return true;
  const at::Tensor x = a.contiguous().reshape({-1}), y = b.contiguous().reshape({-1});
  if (at::equal(x.view(c10::kByte), y.view(c10::kByte))) return true;
  return most > 0 && x.is_floating_point() && distance(x, y) <= most;
}
bool is_same(const at::Tensor& a, const at::Tensor& b, bool nearly) {
  double most = 0;
  if (nearly && b.numel() > 0 && b.is_floating_point())
    most = kNearly * b.to(c10::kDouble).abs().max().item().toDouble();
  return is_same(a, b, most);
}

// A run may round otherwise than the one before: sums by atomic additions, of smelt's kernels or of
// libraries.
bool adds_in_any_order(const LinkedProgram& program) {
  using Buffer = KernelImage::Buffer;
  const auto is_updated = [](Buffer kind) {
    return kind == Buffer::updated || kind == Buffer::zeroed;
  };
  return std::ranges::any_of(program.program().kernels,
                             [&](const KernelImage& kernel) {
                               return !kernel.ordered &&
                                      std::ranges::any_of(kernel.buffers, is_updated);
                             }) ||
         std::ranges::any_of(program.steps(), [](const LinkedStep& step) {
           return step.kind == LinkedStep::Kind::call || step.kind == LinkedStep::Kind::mutator;
         });
}

}  // namespace

// A graph that is ready, and what it holds for.
struct GraphedRuns::Built {
  std::shared_ptr<CaptureStream> captured_on;
  std::unique_ptr<cuda_graphs::PatchedGraph> graph;
  RunRecipe recipe;
  c10::Device device{c10::kCUDA, 0};
  void* stream = nullptr;
  c10::Allocator* allocator = nullptr;
  std::vector<uint64_t> alignments;  // by input; 0: not on CUDA
  std::vector<int64_t> symbols;
  std::vector<uint64_t> addresses;  // of the run at hand
  std::vector<Number> numbers;      // likewise

  at::Tensor make(const MadeTensor& made, const std::vector<at::Tensor>& inputs,
                  const std::vector<c10::Storage>& storages) const {
    if (made.input >= 0) return inputs[made.input];
    if (made.storage < 0) return {};
    return tensor_in(storages[made.storage], made.sizes, made.strides, made.offset, made.dtype);
  }

  void launch(const std::vector<at::Tensor>& inputs, const std::vector<c10::Storage>& storages) {
    addresses.clear();
    for (size_t i = 0; i < inputs.size(); ++i)
      addresses.push_back(alignments[i] ? address_of(inputs[i]) : 0);
    for (const c10::Storage& storage : storages)
      addresses.push_back(reinterpret_cast<uint64_t>(storage.data()));
    graph->launch(addresses, numbers, static_cast<cuda_graphs::Stream>(stream));
  }
};

// Times of both ways, in seconds; and of the host alone, of runs as it is.
struct GraphedRuns::Ways {
  std::vector<double> as_it_is, as_graph, on_host;

  static double middle(std::vector<double> times) {
    std::ranges::nth_element(times, times.begin() + times.size() / 2);
    return times[times.size() / 2];
  }
};

namespace {

// As they were: what the program changes, for a second run on the same contents.
std::vector<at::Tensor> copy_written(const std::vector<at::Tensor>& inputs,
                                     const std::vector<uint32_t>& rises) {
  const BelowAutograd below;
  std::vector<at::Tensor> copies = inputs;  // those of the host as well
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (rises[i] == 0 && (!inputs[i].defined() || inputs[i].is_cuda())) continue;
    copies[i] = at::empty_strided(inputs[i].sizes(), inputs[i].strides(), inputs[i].options());
    copies[i].copy_(inputs[i]);
  }
  return copies;
}

}  // namespace

namespace {

int64_t bytes_of_all(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && tensor.is_cuda())
      bytes += static_cast<int64_t>(tensor.storage().nbytes());
  return bytes;
}

std::string megabytes(int64_t bytes) { return std::to_string(bytes >> 20) + " MB"; }
std::string microseconds(double seconds) {
  return std::to_string(std::lround(seconds * 1e6)) + " us";
}

// What PyTorch's allocator has taken of the device.
int64_t reserved_bytes(c10::Device device) {
  return c10::getDeviceAllocator(device.type())
      ->getDeviceStats(device.index())
      .reserved_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)]
      .current;
}

// Waits for the device before and after, and tells when the host was done.
struct TimedRun {
  using Clock = std::chrono::steady_clock;
  double on_host = 0, all = 0;
  std::vector<at::Tensor> outputs;

  template <class Run>
  TimedRun(void* stream, const Run& run) {
    synchronize(stream);
    const Clock::time_point begin = Clock::now();
    outputs = run();
    on_host = std::chrono::duration<double>(Clock::now() - begin).count();
    synchronize(stream);
    all = std::chrono::duration<double>(Clock::now() - begin).count();
  }
};

}  // namespace

std::unique_ptr<GraphedRuns> GraphedRuns::make(const LinkedProgram& program, GraphUse use) {
  const Program& plain = program.program();
  const bool on_cuda = std::ranges::any_of(plain.inputs, [](const ProgramInput& input) {
    return input.reg >= 0 && input.type.device.is_cuda();
  });
  if (!on_cuda || use == GraphUse::never) return nullptr;
  std::unique_ptr<GraphedRuns> runs(new GraphedRuns(use));
  if (cuda_graphs::graph_driver() == nullptr) {
    runs->refuse(cuda_graphs::driver_problem());
    return runs;
  }
  runs->host_ = std::make_unique<const HostSteps>(find_host_steps(program));
  if (!runs->host_->possible) runs->refuse(runs->host_->possible.reason());
  if (Decision can = can_capture(program); !can) runs->refuse(can.reason());
  return runs;
}

GraphedRuns::GraphedRuns(GraphUse use) : use_(use) {}
GraphedRuns::~GraphedRuns() = default;

void GraphedRuns::refuse(const std::string& reason) {
  refusal_ = reason;
  built_.reset();
  ways_.reset();
  refused_count.fetch_add(1, std::memory_order_relaxed);
  {
    constexpr size_t kLatest = 64;
    const std::lock_guard lock(reasons_mutex);
    if (latest_reasons.size() < kLatest) latest_reasons.push_back(reason);
  }
  if (log_enabled(Log::perf)) log(Log::perf, "no CUDA graph: " + reason);
}

GraphedRuns::Counts GraphedRuns::counts() {
  const std::lock_guard lock(reasons_mutex);
  return {captured_count.load(), launched_count.load(), refused_count.load(), latest_reasons};
}

void GraphedRuns::forget_counts() {
  captured_count = launched_count = refused_count = 0;
  const std::lock_guard lock(reasons_mutex);
  latest_reasons.clear();
}

std::string GraphedRuns::str() const {
  const std::lock_guard lock(mutex_);
  if (!refusal_.empty()) return "launched one by one: " + refusal_;
  if (!built_) return "launched one by one, so far";
  return "a CUDA graph of " + std::to_string(built_->graph->nodes()) + " nodes, " +
         std::to_string(built_->graph->patched_nodes()) + " of them with addresses of the call" +
         (times_.empty() ? "" : "; " + times_);
}

bool GraphedRuns::fits(const std::vector<at::Tensor>& inputs,
                       const std::vector<int64_t>& symbols) const {
  const Built& built = *built_;
  if (symbols != built.symbols || current_stream(built.device) != built.stream) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (built.alignments[i] && alignment_of(address_of(inputs[i])) != built.alignments[i])
      return false;
  }
  for (const RunRecipe::GradEffect& effect : built.recipe.grads)
    if (effect.kind == LinkedStep::Kind::expect_no_grad && inputs[effect.input].grad().defined())
      return false;
  return !is_capturing(built.stream);
}

void GraphedRuns::run_host(const LinkedProgram& program, const std::vector<at::Tensor>& inputs,
                           const std::vector<int64_t>& symbols,
                           std::vector<Number>& numbers) const {
  numbers.clear();
  if (!host_->any) return;
  const PartOfRun part{*host_, true, numbers};
  program.run_steps(inputs, symbols, nullptr, &part);
}

std::vector<at::Tensor> GraphedRuns::launch(const LinkedProgram& program,
                                            const std::vector<at::Tensor>& inputs,
                                            const std::vector<int64_t>& symbols) {
  Built& built = *built_;
  run_host(program, inputs, symbols, built.numbers);
  const c10::DeviceGuard device(built.device);
  std::vector<c10::Storage> storages;
  storages.reserve(built.recipe.storages.size());
  for (const uint64_t bytes : built.recipe.storages)
    storages.push_back(new_storage(bytes, built.allocator));
  built.launch(inputs, storages);
  launched_count.fetch_add(1, std::memory_order_relaxed);
  for (size_t i = 0; i < inputs.size(); ++i)
    for (uint32_t rise = 0; rise < built.recipe.rises[i] && !inputs[i].is_inference(); ++rise)
      inputs[i].unsafeGetTensorImpl()->bump_version();
  for (const RunRecipe::GradEffect& effect : built.recipe.grads) {
    if (effect.kind == LinkedStep::Kind::set_grad)
      inputs[effect.input].mutable_grad() = built.make(effect.value, inputs, storages);
    if (effect.kind == LinkedStep::Kind::clear_grad)
      inputs[effect.input].mutable_grad() = at::Tensor();
  }
  std::vector<at::Tensor> outputs;
  outputs.reserve(built.recipe.outputs.size());
  for (const MadeTensor& made : built.recipe.outputs)
    outputs.push_back(built.make(made, inputs, storages));
  return outputs;
}

// Captures the program, and runs it as it is: these are the results of this run. Then runs the
// graph on what the program was given, and compares.
std::vector<at::Tensor> GraphedRuns::build(const LinkedProgram& program,
                                           const std::vector<at::Tensor>& inputs,
                                           const std::vector<int64_t>& symbols, bool* changed) {
  auto built = std::make_unique<Built>();
  std::vector<at::Tensor> copies, replaced;
  std::string reason;
  try {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ProgramInput& input = program.program().inputs[i];
      const bool on_cuda = inputs[i].defined() && inputs[i].is_cuda() && input.reg >= 0;
      built->alignments.push_back(on_cuda ? alignment_of(address_of(inputs[i])) : 0);
      if (on_cuda) built->device = inputs[i].device();
    }
    built->symbols = symbols;
    built->allocator = c10::GetAllocator(c10::kCUDA);
    built->stream = current_stream(built->device);
    const c10::DeviceGuard device(built->device);
    built->captured_on = CaptureStream::of(built->device.index(), built->stream);
    if (!built->captured_on) throw Error("PyTorch gives no memory for captures here");
    // What the host does is done again when the program runs as it is: here on copies, and of the
    // same random numbers.
    std::vector<uint32_t> none(inputs.size(), 0);
    PlacesOfGenerators drawn_from(program);
    run_host(program, copy_written(inputs, none), symbols, built->numbers);
    drawn_from.restore();
    const int64_t reserved = use_ == GraphUse::if_faster ? reserved_bytes(built->device) : 0;
    GraphCaptures made =
        capture_graph(program, *host_, inputs, symbols, built->numbers, *built->captured_on);
    if (!made.possible) throw Error(made.possible.reason());
    built->recipe = std::move(made.recipe);
    built->graph = std::move(made.graph);
    replaced = std::move(made.replaced);
    if (use_ == GraphUse::if_faster) {
      int64_t extra = reserved_bytes(built->device) - reserved;
      for (size_t i = 0; i < inputs.size(); ++i)
        if (built->recipe.rises[i] > 0) extra += bytes_of_all({inputs[i]});
      if (extra > kMostExtra)
        throw Error("to find out whether a graph is quicker takes " + megabytes(extra));
    }
    copies = copy_written(inputs, built->recipe.rises);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    reason = text.substr(0, text.find('\n'));
  }
  const std::vector<at::Tensor> outputs =
      program.run_steps(inputs, symbols, nullptr, nullptr, changed);
  if (!reason.empty()) {
    refuse(reason);
    return outputs;
  }
  try {
    const BelowAutograd below;
    const c10::DeviceGuard device(built->device);
    for (const at::Tensor& tensor : replaced) fill_with_ones(bytes_of(tensor.storage()));
    std::vector<c10::Storage> storages;
    for (const uint64_t bytes : built->recipe.storages) {
      storages.push_back(new_storage(bytes + kGuard, built->allocator));
      fill_with_ones(bytes_of(storages.back()));
    }
    // A wrong number may make little difference to what is changed, but not to the change.
    const bool nearly = built->numbers.empty() || adds_in_any_order(program);
    std::vector<double> changes(inputs.size());
    for (size_t i = 0; i < inputs.size() && nearly; ++i)
      if (built->recipe.rises[i] > 0) changes[i] = distance(inputs[i], copies[i]);
    built->launch(copies, storages);
    for (size_t i = 0; i < outputs.size() && reason.empty(); ++i)
      if (outputs[i].defined() &&
          !is_same(built->make(built->recipe.outputs[i], copies, storages), outputs[i], nearly))
        reason = "result " + std::to_string(i) + " was another one when it ran as a CUDA graph";
    for (const RunRecipe::GradEffect& effect : built->recipe.grads)
      if (effect.kind == LinkedStep::Kind::set_grad && reason.empty() &&
          !is_same(built->make(effect.value, copies, storages), inputs[effect.input].grad(),
                   nearly))
        reason = "a gradient was another one when it ran as a CUDA graph";
    for (size_t i = 0; i < inputs.size() && reason.empty(); ++i)
      if (built->recipe.rises[i] > 0 && !is_same(copies[i], inputs[i], kNearly * changes[i]))
        reason = "an argument was changed otherwise when it ran as a CUDA graph";
    for (size_t i = 0; i < storages.size() && reason.empty(); ++i) {
      const at::Tensor room =
          bytes_of(storages[i]).slice(0, static_cast<int64_t>(built->recipe.storages[i]));
      if (!room.eq(0xff).all().item().toBool())
        reason = "a kernel wrote behind result " + std::to_string(i);
    }
  } catch (const std::exception& error) {
    reason = error.what();
  }
  if (!reason.empty()) {
    refuse(reason);
    return outputs;
  }
  built_ = std::move(built);
  captured_count.fetch_add(1, std::memory_order_relaxed);
  if (use_ == GraphUse::if_faster) ways_ = std::make_unique<Ways>();
  if (log_enabled(Log::perf))
    log(Log::perf, "a CUDA graph of " + std::to_string(built_->graph->nodes()) + " nodes");
  return outputs;
}

// The last runs before a capture, by the clock: may a graph be quicker at all?
std::vector<at::Tensor> GraphedRuns::look(const LinkedProgram& program,
                                          const std::vector<at::Tensor>& inputs,
                                          const std::vector<int64_t>& symbols, bool* changed) {
  c10::Device device(c10::kCUDA, 0);
  int64_t largest = 0;  // of the stand-ins' memory
  for (const at::Tensor& input : inputs)
    if (input.defined() && input.is_cuda()) {
      device = input.device();
      largest = std::max(largest, static_cast<int64_t>(input.storage().nbytes()));
    }
  TimedRun run(current_stream(device),
               [&] { return program.run_steps(inputs, symbols, nullptr, nullptr, changed); });
  if (!ways_) ways_ = std::make_unique<Ways>();
  ways_->as_it_is.push_back(run.all);
  ways_->on_host.push_back(run.on_host);
  if (calls_ < kRunsBefore) return std::move(run.outputs);
  const double host = std::ranges::min(ways_->on_host), all = std::ranges::min(ways_->as_it_is);
  ways_.reset();
  constexpr int64_t kTimes = 4;  // three captures hold results of their own, and one run is checked
  const int64_t extra = largest + kTimes * bytes_of_all(run.outputs);
  if (host < kHostPart * all)
    refuse("the device is busy for longer than the host (" + microseconds(host) + " of " +
           microseconds(all) + ")");
  else if (extra > kMostExtra)
    refuse("to find out whether a graph is quicker takes " + megabytes(extra));
  return std::move(run.outputs);
}

// One run by the clock, this way or that.
std::vector<at::Tensor> GraphedRuns::measure(const LinkedProgram& program,
                                             const std::vector<at::Tensor>& inputs,
                                             const std::vector<int64_t>& symbols, bool* changed) {
  const bool as_graph = ways_->as_graph.size() <= ways_->as_it_is.size();
  TimedRun run(built_->stream, [&] {
    return as_graph ? launch(program, inputs, symbols)
                    : program.run_steps(inputs, symbols, nullptr, nullptr, changed);
  });
  (as_graph ? ways_->as_graph : ways_->as_it_is).push_back(run.all);
  if (ways_->as_graph.size() < kTimedRuns || ways_->as_it_is.size() < kTimedRuns)
    return std::move(run.outputs);
  const double graph = Ways::middle(ways_->as_graph), plain = Ways::middle(ways_->as_it_is);
  ways_.reset();
  if (graph > kGain * plain)
    refuse("it is not quicker as a graph: " + microseconds(graph) + " against " +
           microseconds(plain));
  else
    times_ = microseconds(graph) + " against " + microseconds(plain) + " one by one";
  return std::move(run.outputs);
}

std::optional<std::vector<at::Tensor>> GraphedRuns::run(const LinkedProgram& program,
                                                        const std::vector<at::Tensor>& inputs,
                                                        const std::vector<int64_t>& symbols,
                                                        bool* changed) {
  // Another thread is at it: its captures ask Python for memory, and must not be waited for.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !refusal_.empty()) return std::nullopt;
  if (!built_) {
    for (const at::Tensor& input : inputs)
      if (input.defined() && input.is_cuda() && is_capturing(current_stream(input.device())))
        return std::nullopt;
    if (++calls_ > kRunsBefore) return build(program, inputs, symbols, changed);
    if (use_ == GraphUse::always || calls_ <= kRunsBefore - kLooks) return std::nullopt;
    return look(program, inputs, symbols, changed);
  }
  if (!fits(inputs, symbols)) {
    if (++misfits_ >= kMostMisfits)
      refuse("sizes, numbers, alignment or the stream change from call to call");
    return std::nullopt;
  }
  misfits_ = 0;
  return ways_ ? measure(program, inputs, symbols, changed) : launch(program, inputs, symbols);
}

}  // namespace smelt
