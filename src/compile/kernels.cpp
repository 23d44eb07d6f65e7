#include "compile/kernels.h"

#include <chrono>
#include <map>

#include "diagnostics/clock.h"
#include "diagnostics/counters.h"

namespace smelt {
namespace {

// What updated buffers begin as is not known to loops.
void mark_zeroed(const ScheduledKernel& scheduled, KernelImage& image) {
  for (size_t i = 0; i < image.buffers.size(); ++i)
    if (image.buffers[i] == KernelImage::Buffer::updated && scheduled.bases[i] < 0)
      image.buffers[i] = KernelImage::Buffer::zeroed;
}

}  // namespace

std::vector<KernelImage> make_kernels(const Schedule& schedule, const CompileOptions& options,
                                      const SymbolTable& symbols, Record& record) {
  KernelOptions kernel_options = options.kernels;
  kernel_options.likely_symbols = symbols.hints();
  std::map<const Backend*, std::vector<size_t>> by_backend;
  for (size_t i = 0; i < schedule.kernels.size(); ++i)
    by_backend[schedule.kernels[i].backend].push_back(i);
  std::vector<KernelImage> images(schedule.kernels.size());
  for (const auto& [backend, positions] : by_backend) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<const loops::Kernel*> kernels;
    for (const size_t i : positions) kernels.push_back(&schedule.kernels[i].kernel);
    std::vector<KernelImage> made = backend->compile(kernels, kernel_options);
    bool are_unmade = false;
    for (size_t i = 0; i < positions.size(); ++i) {
      are_unmade = are_unmade || made[i].unmade;
      mark_zeroed(schedule.kernels[positions[i]], made[i]);
      made[i].device = schedule.kernels[positions[i]].device;
      images[positions[i]] = std::move(made[i]);
    }
    if (!backend->is_native()) continue;
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    count(Counter::kernels, static_cast<int64_t>(positions.size()));
    if (!kernel_options.later) add_code_ns(static_cast<int64_t>(1e9 * seconds));
    record.entries.push_back({.stage = "codegen",
                              .name = backend->target(),
                              .seconds = seconds,
                              .changed = true,
                              .note = std::to_string(positions.size()) + " kernels" +
                                      (are_unmade ? ", without code so far" : "")});
  }
  return images;
}

}  // namespace smelt
