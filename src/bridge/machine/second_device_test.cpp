// A program on a device that is not the host's: a back end whose kernels PyTorch's allocator for
// the device gives memory to, that tells no failure, and that takes numbers as parameters. The
// device is one that PyTorch leaves to others; its memory is the host's, so that the loop
// interpreter can be its processor.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "bridge/machine/aten_host.h"
#include "bridge/machine/linked_program.h"
#include "compile/compile.h"
#include "compile/kernels.h"
#include "loops/interpret.h"

namespace smelt {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
c10::DeviceIndex current_index = 0;
int allocations = 0;

class Guard final : public c10::impl::NoOpDeviceGuardImpl<kType> {
 public:
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kType, std::exchange(current_index, device.index())};
  }
  c10::Device getDevice() const override { return {kType, current_index}; }
  void setDevice(c10::Device device) const override { current_index = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current_index = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

class Memory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    ++allocations;
    void* const memory = std::malloc(bytes + 1);
    return {memory, memory, &std::free, c10::Device(kType, current_index)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};
Memory memory;
const bool has_memory = (c10::SetAllocator(kType, &memory), true);

at::Tensor on_device(const at::Tensor& host, c10::DeviceIndex index) {
  const c10::DeviceGuard guard(c10::Device(kType, index));
  const at::Tensor tensor = at::detail::empty_strided_generic(
      host.sizes(), host.strides(), &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      host.scalar_type());
  std::memcpy(tensor.mutable_data_ptr(), host.const_data_ptr(), host.nbytes());
  return tensor;
}

at::Tensor on_host(const at::Tensor& tensor) {
  at::Tensor host = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  std::memcpy(host.mutable_data_ptr(), tensor.const_data_ptr(), host.nbytes());
  return host;
}

struct Loaded final : LoadedKernel {
  loops::Kernel kernel;
  Device device;
};

// What it was asked to do.
struct Asked {
  size_t launches = 0, kernels = 0, params = 0;
} asked;

class DeviceBackend final : public Backend {
 public:
  std::string_view name() const override { return "second device"; }
  std::string target() const override { return "interpret"; }
  Decision is_available() const override { return Decision::allow(); }
  bool is_native() const override { return false; }
  bool serves(const Device& device) const override { return device.type == 20; }
  bool runs_on_host() const override { return false; }
  const FusionLimits& limits() const override { return kHostLimits; }
  Decision can_compile(const loops::Kernel& kernel) const override {
    for (const loops::Inst& inst : kernel.insts) {
      if (inst.op == loops::Op::sinh) return Decision::forbid("no hyperbolic sines");
      if (inst.op == loops::Op::cosh && kernel.insts.size() > 3)
        return Decision::forbid("only short kernels of hyperbolic cosines");
    }
    return Decision::allow();
  }
  std::vector<KernelImage> compile(std::span<const loops::Kernel* const> kernels,
                                   const KernelOptions&) const override {
    std::vector<KernelImage> images;
    for (const loops::Kernel* kernel : kernels) {
      images.push_back(describe(*kernel, *this));
      images.back().code = std::make_shared<const std::string>(kernel->str());
    }
    return images;
  }
  std::vector<std::shared_ptr<const LoadedKernel>> load(
      std::span<const KernelImage> images) const override {
    std::vector<std::shared_ptr<const LoadedKernel>> all;
    for (const KernelImage& image : images) {
      const auto loaded = std::make_shared<Loaded>();
      loaded->kernel = loops::Kernel::parse(*image.code);
      loaded->device = image.device;
      all.push_back(loaded);
    }
    return all;
  }
  bool launch(std::span<const Launch> launches, std::span<const int64_t>,
              Host& host) const override {
    ++asked.launches;
    for (const Launch& launch : launches) {
      const auto& loaded = *static_cast<const Loaded*>(launch.kernel);
      const loops::Kernel& kernel = loaded.kernel;
      ++asked.kernels;
      asked.params += kernel.params;
      EXPECT_EQ(current_index, loaded.device.index);
      EXPECT_NE(host.device_memory(loaded.device, 16), nullptr);
      loops::interpret(kernel, {.buffers = {launch.buffers, kernel.buffers.size()},
                                .sizes = {},
                                .params = {launch.params, static_cast<size_t>(kernel.params)}});
    }
    return true;
  }
};
const DeviceBackend backend;
const BackendRegistration registration(backend);

ScheduleOptions both_devices() {
  ScheduleOptions options;
  options.backends = {find_backend("interpret"), &backend};
  return options;
}

Program compiled(const std::string& text) {
  Graph graph = Graph::parse(text);
  graph.verify();
  CompileOptions options;
  options.schedule = both_devices();
  Record record;
  return compile(graph, options, record);
}

std::vector<at::Tensor> run(const std::string& text, std::vector<at::Tensor> inputs) {
  asked = {};
  return LinkedProgram(compiled(text), {}).run(std::move(inputs), {});
}

TEST(SecondDevice, RunsKernelsOnItsOwnMemory) {
  const at::Tensor x = at::arange(32, at::kFloat).view({4, 8}) / 16;
  const int before = allocations;
  const auto out = run(R"(graph {
  input %0: f32[4, 8] privateuseone:1 = argument 0
  input %1: f64[] number = argument 1
  %2: f32[4, 8] privateuseone:1 = aten::mul.Tensor(%0, %1)
  %3: f32[4, 8] privateuseone:1 = aten::exp(%2)
  %4: f32[4] privateuseone:1 = aten::sum.dim_IntList(%3, [1], false, none)
  return (%3, %4)
})",
                       {on_device(x, 1), at::scalar_tensor(-0.5, at::kDouble)});
  EXPECT_EQ(out[0].device(), c10::Device(kType, 1));
  EXPECT_TRUE(at::allclose(on_host(out[0]), at::exp(x * -0.5)));
  EXPECT_TRUE(at::allclose(on_host(out[1]), at::exp(x * -0.5).sum(1)));
  EXPECT_EQ(asked.kernels, 1);
  EXPECT_EQ(asked.params, 1);
  EXPECT_EQ(allocations - before, 1 + 2 + 1) << "the input, two results, what the launch asks for";
  EXPECT_EQ(current_index, 0);
}

TEST(SecondDevice, SharesNoKernelWithAnother) {
  const at::Tensor x = at::rand(8);
  const auto out = run(R"(graph {
  input %0: f32[8] privateuseone:0 = argument 0
  input %1: f32[8] privateuseone:1 = argument 1
  input %2: f32[8] = argument 2
  %3: f32[8] privateuseone:0 = aten::exp(%0)
  %4: f32[8] privateuseone:1 = aten::exp(%1)
  %5: f32[8] = aten::exp(%2)
  return (%3, %4, %5)
})",
                       {on_device(x, 0), on_device(x, 1), x});
  for (const at::Tensor& each : out) EXPECT_TRUE(at::allclose(on_host(each), at::exp(x)));
  EXPECT_EQ(asked.kernels, 2);
  EXPECT_EQ(asked.launches, 2);
}

// Results that only kernels read lie in an arena on the host; a device's allocator is as quick.
TEST(SecondDevice, HasNoArena) {
  const at::Tensor x = at::rand({64, 64});
  const auto out = run(R"(graph {
  input %0: f32[64, 64] privateuseone:0 = argument 0
  %1: f32[64] privateuseone:0 = aten::sum.dim_IntList(%0, [0], false, none)
  %2: f32[64] privateuseone:0 = aten::cumsum(%1, 0)
  %3: f32[64] privateuseone:0 = aten::sum.dim_IntList(%0, [1], false, none)
  %4: f32[64, 64] privateuseone:0 = aten::mul.Tensor(%0, %2)
  return (%4, %3)
})",
                       {on_device(x, 0)});
  EXPECT_TRUE(at::allclose(on_host(out[0]), x * x.sum(0).cumsum(0)));
  EXPECT_TRUE(at::allclose(on_host(out[1]), x.sum(1)));
  EXPECT_GT(asked.kernels, 1);
}

TEST(SecondDevice, LeavesMixedTensorsToPyTorch) {
  const Program program = compiled(R"(graph {
  input %0: f32[8] privateuseone:0 = argument 0
  input %1: f32[] = argument 1
  %2: f32[8] privateuseone:0 = aten::mul.Tensor(%0, %1)
  %3: f32[8] privateuseone:0 = aten::exp(%2)
  return (%3)
})");
  ASSERT_EQ(program.steps.size(), 2);
  EXPECT_EQ(program.steps[0].kernel, -1);
  EXPECT_EQ(program.steps[1].kernel, 0);
}

// A kernel that looks elements up reports failure on the host, where it must not have changed
// anything then. Here nobody is told.
TEST(SecondDevice, StoresInPlaceWhatMayFail) {
  const std::string text = R"(graph {
  input %0: f32[8]@ = argument 0
  input %1: f32[8]@ = argument 1
  input %2: i64[8]@ = argument 2
  %3: f32[8]@ = aten::index_select(%1, 0, %2)
  %4: f32[8]@ = smelt::write(%0, %3) effect view
  return ()
})";
  const auto stored = [&](const std::string& device) {
    std::string placed = text;
    for (size_t at = placed.find('@'); at != std::string::npos; at = placed.find('@'))
      placed.replace(at, 1, device);
    const Program program = compiled(placed);
    return std::ranges::any_of(program.steps, [](const Step& step) {
      return std::ranges::any_of(step.into, [](Register reg) { return reg >= 0; });
    });
  };
  EXPECT_FALSE(stored(""));
  EXPECT_TRUE(stored(" privateuseone:0"));
}

TEST(SecondDevice, IsAskedForEachKernel) {
  const auto kernels = [](const std::string& first, const std::string& second) {
    Graph graph = Graph::parse(R"(graph {
  input %0: f32[8] privateuseone:0 = argument 0
  %1: f32[8] privateuseone:0 = aten::)" +
                               first + R"((%0)
  %2: f32[8] privateuseone:0 = aten::)" +
                               second + R"((%1)
  return (%2)
})");
    Record record;
    const Schedule schedule = make_schedule(graph, both_devices(), record);
    return std::pair(schedule.kernels.size(), schedule.order.size());
  };
  EXPECT_EQ(kernels("exp", "neg"), std::pair(size_t{1}, size_t{1}));
  EXPECT_EQ(kernels("sinh", "neg"), std::pair(size_t{1}, size_t{2})) << "one is called";
  EXPECT_EQ(kernels("cosh", "neg"), std::pair(size_t{2}, size_t{2})) << "each has its own";
}

}  // namespace
}  // namespace smelt
