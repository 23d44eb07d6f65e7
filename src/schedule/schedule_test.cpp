// Which nodes share a kernel, and what is said where they don't. The kernels themselves are in
// compile/kernels_test.ir.
#include "schedule/schedule.h"

#include <gtest/gtest.h>

namespace smelt {
namespace {

// Takes kernels of the CPU up to a number of buffers, and makes no code.
class SmallBackend final : public Backend {
 public:
  explicit SmallBackend(size_t most_buffers) : most_buffers_(most_buffers) {}
  std::string_view name() const override { return "small"; }
  std::string target() const override { return "none"; }
  Decision is_available() const override { return Decision::allow(); }
  bool is_native() const override { return false; }
  bool serves(const Device& device) const override { return device.is_cpu(); }
  const FusionLimits& limits() const override { return kHostLimits; }
  Decision can_compile(const loops::Kernel& kernel) const override {
    return kernel.buffers.size() <= most_buffers_ ? Decision::allow()
                                                  : Decision::forbid("it has too many buffers");
  }
  std::vector<KernelImage> compile(std::span<const loops::Kernel* const>,
                                   const KernelOptions&) const override {
    return {};
  }
  std::vector<std::shared_ptr<const LoadedKernel>> load(
      std::span<const KernelImage>) const override {
    return {};
  }
  bool launch(std::span<const Launch>, std::span<const int64_t>, Host&) const override {
    return false;
  }

 private:
  const size_t most_buffers_;
};

// The units in their order: the names of kernels, and of ops that are called.
std::string units(const Graph& graph, const Schedule& schedule) {
  std::string text;
  for (const Unit& unit : schedule.order)
    text += (text.empty() ? "" : ", ") +
            (unit.kernel >= 0 ? "kernel " + schedule.kernels[unit.kernel].kernel.name
                              : std::string(graph.nodes[unit.node].op.str()));
  return text;
}

const SmallBackend takes_all(100), takes_two_buffers(2);

Schedule scheduled(const Graph& graph, const Backend& backend = takes_all) {
  ScheduleOptions options;
  options.backends = {&backend};
  Record record;
  return make_schedule(graph, options, record);
}

TEST(Schedule, CallsWhatHasNoMeaningBetweenKernels) {
  const Graph graph = Graph::parse(R"(graph {
  input %0: f32[4, 8] = argument 0
  %1: f32[4, 8] = aten::exp(%0)
  %2: f32[4, 8], %3: i64[4, 8] = aten::sort(%1, 1, false)
  %4: f32[4, 8] = aten::neg(%2)
  %5: f32[4, 8] = aten::sin(%4)
  return (%5, %3)
})");
  const Schedule schedule = scheduled(graph);
  EXPECT_EQ(units(graph, schedule), "kernel exp, aten::sort, kernel neg_sin");
  ASSERT_EQ(schedule.refusals.size(), 1u);
  EXPECT_TRUE(schedule.refusals[0].starts_with("aten::sort")) << schedule.refusals[0];
}

TEST(Schedule, MakesNoKernelsForADeviceThatNobodyServes) {
  const Graph graph = Graph::parse(R"(graph {
  input %0: f32[8] cuda:0 = argument 0
  %1: f32[8] cuda:0 = aten::exp(%0)
  return (%1)
})");
  EXPECT_EQ(units(graph, scheduled(graph)), "aten::exp");
}

TEST(Schedule, TakesApartWhatABackEndRefuses) {
  const Graph graph = Graph::parse(R"(graph {
  input %0: f32[8] = argument 0
  input %1: f32[8] = argument 1
  %2: f32[8] = aten::exp(%0)
  %3: f32[8] = aten::mul.Tensor(%2, %1)
  return (%3)
})");
  EXPECT_EQ(units(graph, scheduled(graph)), "kernel exp_mul");
  const Schedule parted = scheduled(graph, takes_two_buffers);
  EXPECT_EQ(units(graph, parted), "kernel exp, aten::mul.Tensor");
  ASSERT_EQ(parted.refusals.size(), 1u);
  EXPECT_NE(parted.refusals[0].find("it has too many buffers"), std::string::npos);
}

TEST(Schedule, SaysWhyTwoKernelsAreNotOne) {
  const Graph graph = Graph::parse(R"(graph {
  input %0: f32[64, 128] = argument 0
  %1: f32[128] = aten::sum.dim_IntList(%0, [0], false)
  %2: f32[] = aten::sum(%1, none)
  return (%2)
})");
  const Schedule schedule = scheduled(graph);
  ASSERT_EQ(schedule.kernels.size(), 2u);
  ASSERT_EQ(schedule.boundaries.size(), 1u);
  EXPECT_EQ(schedule.boundaries[0].before, 0);
  EXPECT_EQ(schedule.boundaries[0].after, 1);
  EXPECT_FALSE(schedule.boundaries[0].why.empty());
}

}  // namespace
}  // namespace smelt
