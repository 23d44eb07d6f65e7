#include "compile/kernels.h"

#include <chrono>
#include <unordered_map>

#include "base/counters.h"
#include "loops/interpret.h"

namespace smelt {
namespace {

KernelCode::Buffer kind_of(const ScheduledKernel& scheduled, size_t buffer) {
  switch (scheduled.kernel.buffers[buffer].kind) {
    case loops::Buffer::Kind::input: return KernelCode::Buffer::input;
    case loops::Buffer::Kind::output: return KernelCode::Buffer::output;
    case loops::Buffer::Kind::scratch: return KernelCode::Buffer::scratch;
    case loops::Buffer::Kind::updated: break;
  }
  return scheduled.bases[buffer] >= 0 ? KernelCode::Buffer::updated : KernelCode::Buffer::zeroed;
}

KernelCode describe(const ScheduledKernel& scheduled) {
  const loops::Kernel& kernel = scheduled.kernel;
  KernelCode code;
  code.name = kernel.name;
  code.sizes = loops::size_params(kernel);
  for (size_t i = 0; i < kernel.buffers.size(); ++i) code.buffers.push_back(kind_of(scheduled, i));
  return code;
}

KernelCode interpreted(const ScheduledKernel& scheduled) {
  KernelCode code = describe(scheduled);
  const auto shared = std::make_shared<const loops::Kernel>(scheduled.kernel);
  code.interpret = [shared, sizes = code.sizes.size()](void* const* buffers,
                                                       const int64_t* values) {
    return loops::interpret(
        *shared,
        {.buffers = {buffers, shared->buffers.size()}, .sizes = {values, sizes}, .params = {}});
  };
  return code;
}

}  // namespace

std::vector<KernelCode> make_kernels(const Schedule& schedule, const CompileOptions& options,
                                     Record& record) {
  std::vector<KernelCode> codes;
  if (options.engine == Engine::interpreted) {
    for (const ScheduledKernel& scheduled : schedule.kernels)
      codes.push_back(interpreted(scheduled));
    return codes;
  }
  if (schedule.kernels.empty()) return codes;
  const auto start = std::chrono::steady_clock::now();
  std::vector<const loops::Kernel*> kernels;
  for (const ScheduledKernel& scheduled : schedule.kernels) kernels.push_back(&scheduled.kernel);
  const std::shared_ptr<const CpuModule> module = compile_cpu(kernels, options.cpu);
  for (size_t i = 0; i < kernels.size(); ++i) {
    const CpuKernel& made = module->kernel(i);
    KernelCode code = describe(schedule.kernels[i]);
    code.run = made.run;
    code.units = made.units;
    code.unit_cost = made.unit_cost;
    code.scratch_bytes = made.scratch_bytes;
    code.ordered = made.ordered;
    code.finish = made.finish;
    code.finish_units = made.finish_units;
    code.partial_bytes = made.partial_bytes;
    code.owner = module;
    codes.push_back(std::move(code));
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  count(Counter::kernels, static_cast<int64_t>(codes.size()));
  record.entries.push_back({.stage = "codegen",
                            .name = cpu_target(),
                            .seconds = seconds,
                            .changed = true,
                            .note = std::to_string(codes.size()) + " kernels"});
  return codes;
}

}  // namespace smelt
