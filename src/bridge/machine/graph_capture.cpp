#include "bridge/machine/graph_capture.h"

#include <ATen/core/enum_tag.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <unordered_map>

#include "aten/op_info.h"
#include "cuda_graphs/number_words.h"

namespace smelt {
namespace {

using cuda_graphs::check;
using cuda_graphs::graph_driver;
using cuda_graphs::kBlock;
using cuda_graphs::kSlot;

constexpr size_t kCaptures = 3;

bool draws(const LinkedStep& step) {
  if (step.kind == LinkedStep::Kind::save_rng || step.kind == LinkedStep::Kind::restore_rng)
    return true;
  if (!step.op) return false;
  return smelt::draws(op_info(*step.op), step.arguments);
}

// A tensor of the same type at another address. It owns no memory.
at::Tensor stand_in(const at::Tensor& like, uint64_t storage_address) {
  c10::Storage storage(c10::Storage::use_byte_size_t{}, like.storage().nbytes(),
                       c10::DataPtr(reinterpret_cast<void*>(storage_address), like.device()),
                       nullptr, false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(),
                                                      like.storage_offset());
  if (like.is_conj()) tensor._set_conj(true);
  if (like.is_neg()) tensor._set_neg(true);
  return tensor;
}

uint64_t storage_address(const at::Tensor& tensor) {
  return reinterpret_cast<uint64_t>(tensor.storage().data());
}

// From its first element on: where in its storage that is may differ from call to call.
cuda_graphs::Memory memory_of(const at::Tensor& tensor) {
  const uint64_t before = static_cast<uint64_t>(tensor.storage_offset()) * tensor.itemsize();
  return {.address = storage_address(tensor) + before, .bytes = tensor.storage().nbytes() - before};
}

// What a captured run leaves behind: the nodes of each step, where storages came from, gradients.
class Observer final : public StepObserver {
 public:
  Observer(const LinkedProgram& program, cuda_graphs::Stream stream)
      : program_(program), stream_(stream) {}

  struct Grad {
    LinkedStep::Kind kind;
    at::Tensor owner;  // an argument, or what a write has made of one: the same tensor
    at::Tensor value;
  };

  void after_step(size_t index, const std::function<at::Tensor(Register)>& tensor) override {
    using Kind = LinkedStep::Kind;
    const LinkedStep& step = program_.steps()[index];
    switch (step.kind) {
      case Kind::set_grad:
        grads.push_back({step.kind, tensor(step.targets[0]), tensor(step.targets[1])});
        break;
      case Kind::clear_grad:
      case Kind::expect_no_grad: grads.push_back({step.kind, tensor(step.targets[0]), {}}); break;
      case Kind::number:
      case Kind::item:
      case Kind::expect:
      case Kind::fits:
      case Kind::draw: break;
      default:
        for (const Register reg : program_.program().steps[index].results)
          if (reg >= 0) note_storage(tensor(reg), index);
    }
    // Steps of the host are not part of the captured run.
    nodes_behind.resize(index, nodes_behind.empty() ? 0 : nodes_behind.back());
    nodes_behind.push_back(count_nodes());
  }

  // -1: it was there before.
  int32_t step_of(const at::Tensor& tensor) const {
    const auto known = first_.find(tensor.storage().unsafeGetStorageImpl());
    return known == first_.end() ? -1 : known->second.step;
  }

  std::vector<size_t> nodes_behind;  // by step
  std::vector<Grad> grads;

 private:
  struct First {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // no other one gets its address
    int32_t step;
  };

  void note_storage(const at::Tensor& tensor, size_t step) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const c10::Storage& storage = tensor.storage();
    c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
    if (first_.contains(impl)) return;
    first_.emplace(impl, First{storage.getWeakStorageImpl(), static_cast<int32_t>(step)});
  }

  size_t count_nodes() const {
    size_t count = 0;
    check(graph_driver()->graph_nodes(cuda_graphs::graph_of_capture(stream_), nullptr, &count),
          "cuGraphGetNodes");
    return count;
  }

  const LinkedProgram& program_;
  const cuda_graphs::Stream stream_;
  std::unordered_map<c10::StorageImpl*, First> first_;
};

// One capture, from the stand-ins to the recipe.
class OneCapture {
 public:
  OneCapture(const LinkedProgram& program, const HostSteps& host, CaptureStream& on)
      : program_(program),
        host_(host),
        on_(on),
        observer_(program, static_cast<cuda_graphs::Stream>(on.stream())) {}

  // The stand-ins keep nothing alive, but outputs are held.
  Decision make(std::vector<at::Tensor> inputs, const std::vector<int64_t>& symbols,
                std::vector<Number> numbers, c10::Device device) {
    inputs_ = std::move(inputs);
    numbers_ = std::move(numbers);
    std::vector<int64_t> versions;
    for (const at::Tensor& input : inputs_) versions.push_back(version_of(input));
    run(symbols, device);
    for (size_t i = 0; i < inputs_.size(); ++i)
      recipe.rises.push_back(static_cast<uint32_t>(version_of(inputs_[i]) - versions[i]));
    for (const at::Tensor& output : outputs_) {
      MadeTensor made;
      if (Decision known = describe(output, made); !known) return known;
      recipe.outputs.push_back(std::move(made));
    }
    for (const Observer::Grad& grad : observer_.grads) {
      RunRecipe::GradEffect effect{grad.kind, 0, {}};
      if (Decision known = find_owner(grad.owner, effect.input); !known) return known;
      if (Decision known = describe(grad.value, effect.value); !known) return known;
      recipe.grads.push_back(std::move(effect));
    }
    for (const at::Tensor& input : inputs_) {
      if (input.defined() && input.is_cuda())
        capture.inputs.push_back(memory_of(input));
      else
        capture.inputs.push_back({});
    }
    return cuda_graphs::read_nodes(graph.get(), observer_.nodes_behind, capture.nodes);
  }

  cuda_graphs::Capture capture;
  cuda_graphs::OwnedGraph graph;
  RunRecipe recipe;
  std::vector<at::Tensor> storages;  // one tensor in each fresh storage

 private:
  static int64_t version_of(const at::Tensor& tensor) {
    return tensor.defined() && !tensor.is_inference() ? static_cast<int64_t>(tensor._version()) : 0;
  }

  void run(const std::vector<int64_t>& symbols, c10::Device device) {
    const auto stream = static_cast<cuda_graphs::Stream>(on_.stream());
    const c10::StreamGuard guard(
        c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(on_.stream())));
    on_.pool().enter();
    const auto leave = c10::make_scope_exit([&] { on_.pool().leave(); });
    constexpr int kThreadLocal = 1;
    check(graph_driver()->stream_begin_capture(stream, kThreadLocal), "cuStreamBeginCapture");
    const auto end = [&] {
      cuda_graphs::Graph captured = nullptr;
      const cuda_graphs::Status status = graph_driver()->stream_end_capture(stream, &captured);
      graph.reset(captured);
      return status;
    };
    try {
      const PartOfRun part{host_, false, numbers_};
      outputs_ = program_.run_steps(inputs_, symbols, &observer_, &part);
    } catch (...) {
      end();
      graph.reset();
      throw;
    }
    check(end(), "cuStreamEndCapture");
  }

  Decision describe(const at::Tensor& tensor, MadeTensor& made) {
    if (!tensor.defined()) return Decision::allow();
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].defined()) continue;
      if (tensor.is_same(inputs_[i])) {
        made.input = static_cast<int32_t>(i);
        return Decision::allow();
      }
      if (tensor.has_storage() &&
          tensor.storage().unsafeGetStorageImpl() == inputs_[i].storage().unsafeGetStorageImpl())
        return Decision::forbid("a result shows the memory of an argument");
    }
    if (!tensor.is_cuda() || tensor.layout() != c10::kStrided || tensor.is_conj() ||
        tensor.is_neg())
      return Decision::forbid("a result is not a plain tensor on CUDA");
    const int32_t step = observer_.step_of(tensor);
    if (step < 0) return Decision::forbid("a result is a constant of the program");
    made.sizes = tensor.sizes().vec();
    made.strides = tensor.strides().vec();
    made.offset = tensor.storage_offset();
    made.dtype = tensor.scalar_type();
    const auto shared = std::ranges::find_if(storages, [&](const at::Tensor& other) {
      return other.storage().unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl();
    });
    made.storage = static_cast<int32_t>(shared - storages.begin());
    if (shared != storages.end()) return Decision::allow();
    storages.push_back(tensor);
    recipe.storages.push_back(tensor.storage().nbytes());
    capture.outputs.push_back(
        {.address = storage_address(tensor), .bytes = tensor.storage().nbytes(), .step = step});
    return Decision::allow();
  }

  Decision find_owner(const at::Tensor& owner, size_t& input) const {
    for (input = 0; input < inputs_.size(); ++input)
      if (inputs_[input].is_same(owner)) return Decision::allow();
    return Decision::forbid("a gradient is set of something that is no argument");
  }

  const LinkedProgram& program_;
  const HostSteps& host_;
  CaptureStream& on_;
  Observer observer_;
  std::vector<at::Tensor> inputs_, outputs_;
  std::vector<Number> numbers_;
};

// The memory that stand-ins point into: they lie over each other, for nothing is ever read there.
class Window {
 public:
  Window(const std::vector<at::Tensor>& inputs, c10::Device device) : inputs_(inputs) {
    uint64_t largest = 0;
    for (const at::Tensor& input : inputs)
      if (input.defined() && input.is_cuda())
        largest = std::max<uint64_t>(largest, input.storage().nbytes());
    const uint64_t slots = cuda_graphs::slot_of(inputs.size(), kCaptures - 1, inputs.size());
    memory_ = at::empty({static_cast<int64_t>(largest + slots + 2 * kBlock)},
                        c10::TensorOptions().dtype(c10::kByte).device(device));
  }

  // As the real ones are aligned.
  std::vector<at::Tensor> stand_ins(size_t capture) const {
    const uint64_t begin = (storage_address(memory_) + kBlock - 1) / kBlock * kBlock;
    std::vector<at::Tensor> made;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].defined() || !inputs_[i].is_cuda()) {
        made.push_back(inputs_[i]);
        continue;
      }
      made.push_back(stand_in(inputs_[i], begin + cuda_graphs::slot_of(i, capture, inputs_.size()) +
                                              storage_address(inputs_[i]) % kSlot));
    }
    return made;
  }

  const at::Tensor& memory() const { return memory_; }

 private:
  const std::vector<at::Tensor>& inputs_;
  at::Tensor memory_;
};

}  // namespace

Decision can_capture(const LinkedProgram& program) {
  for (size_t i = 0; i < program.steps().size(); ++i) {
    const LinkedStep& step = program.steps()[i];
    const std::string& op = program.program().steps[i].op;
    if (draws(step)) return Decision::forbid(op + " draws random numbers");
    if (step.checked) return Decision::forbid(op + " is not PyTorch's own");
  }
  return Decision::allow();
}

GraphCaptures capture_graph(const LinkedProgram& program, const HostSteps& host,
                            const std::vector<at::Tensor>& inputs,
                            const std::vector<int64_t>& symbols, const std::vector<Number>& numbers,
                            CaptureStream& on) {
  GraphCaptures made;
  c10::Device device(c10::kCUDA);
  for (const at::Tensor& input : inputs)
    if (input.defined() && input.is_cuda()) device = input.device();
  on.warm_up(device.index());
  const Window window(inputs, device);
  std::vector<std::unique_ptr<OneCapture>> all;  // outputs are held: each capture has others
  std::vector<cuda_graphs::Capture> captures;
  std::vector<std::vector<Number>> invented(kCaptures);
  for (size_t k = 0; k < kCaptures; ++k) {
    for (size_t i = 0; i < numbers.size(); ++i)
      invented[k].push_back(cuda_graphs::invented_number(i, k, numbers[i]));
    auto one = std::make_unique<OneCapture>(program, host, on);
    made.possible = one->make(window.stand_ins(k), symbols, invented[k], device);
    if (!made.possible) return made;
    if (k > 0 && !(one->recipe == all[0]->recipe)) {
      made.possible = Decision::forbid("its results are of another kind each time");
      return made;
    }
    captures.push_back(std::move(one->capture));
    all.push_back(std::move(one));
  }
  const cuda_graphs::Places places = cuda_graphs::find_places(captures);
  made.possible = places.possible;
  if (!made.possible) return made;
  const cuda_graphs::NumberPlaces shown =
      cuda_graphs::find_number_places(captures, invented, places.all);
  made.possible = shown.possible;
  if (!made.possible) return made;
  OneCapture& last = *all.back();
  made.recipe = std::move(last.recipe);
  made.replaced = last.storages;
  made.replaced.push_back(window.memory());
  made.graph = std::make_unique<cuda_graphs::PatchedGraph>(
      std::move(last.graph), places.all, shown.all, inputs.size() + made.recipe.storages.size(),
      numbers.size());
  return made;
}

}  // namespace smelt
