// What a step of a Program costs beyond the op that it calls; must hold: well under a microsecond.
//
// A chain of a thousand tiny ops is recorded. Its replay and the same ops, called from C++ below
// autograd as the replay calls them, take turns. Time is the difference per step; op_ns and step_ns
// are what it is the difference of.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <benchmark/benchmark.h>
#include <smelt/smelt.h>

#include <ctime>
#include <functional>
#include <vector>

namespace {

constexpr int kSteps = 1000;

using Op = std::function<at::Tensor(const at::Tensor&)>;

// Each op reads the result of the one before, so that no step can be shared, moved or dropped. The
// copy at its head makes views in the chain ordinary ones: a view of an argument that is returned
// is made so that autograd knows it, which costs more.
at::Tensor chain(const Op& op, at::Tensor x) {
  x = x.clone();
  for (int i = 0; i < kSteps; ++i) x = op(x);
  return x;
}

// The processor's time of this thread, which alone works here: what else the machine does is not
// counted.
double now_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

double nanoseconds(const std::function<void()>& call) {
  const double start = now_ns();
  call();
  return now_ns() - start;
}

void beyond_the_op(benchmark::State& state, const Op& op, const at::Tensor& x) {
  const smelt::Graph graph =
      smelt::record([&](const auto& in) { return std::vector{chain(op, in[0])}; }, {x});
  if (graph.size() != kSteps + 1) return state.SkipWithError("the passes changed the chain");
  const auto direct = [&] {
    at::AutoDispatchBelowADInplaceOrView below;
    benchmark::DoNotOptimize(chain(op, x));
  };
  const auto replay = [&] { benchmark::DoNotOptimize(graph.run({x})); };
  double ops = 0, steps = 0;
  for ([[maybe_unused]] auto _ : state) {
    const double op_ns = nanoseconds(direct) / kSteps, step_ns = nanoseconds(replay) / kSteps;
    ops += op_ns;
    steps += step_ns;
    state.SetIterationTime(1e-9 * (step_ns - op_ns));
  }
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["op_ns"] = ops / iterations;
  state.counters["step_ns"] = steps / iterations;
}

void measure(const char* name, const Op& op, const at::Tensor& x = at::ones({1, 1})) {
  benchmark::RegisterBenchmark(name, beyond_the_op, op, x)->UseManualTime()->Iterations(1000);
}

const bool kRegistered = [] {
  static const at::Tensor other = at::ones({1, 1});
  measure("add", [](const at::Tensor& x) { return at::add(x, other); });
  measure("slice", [](const at::Tensor& x) { return x.slice(0, 1); }, at::ones({kSteps + 1}));
  measure("sum_dim", [](const at::Tensor& x) { return at::sum(x, {0}, /*keepdim=*/true); });
  measure("cat", [](const at::Tensor& x) { return at::cat({x}, 0); });
  return true;
}();

}  // namespace
