// Graphs through schedule and lowering, for tests that look at the program. Kernels are named, not
// compiled.
#pragma once

#include <string>
#include <vector>

#include "compile/compile.h"

namespace smelt {

// Takes every kernel of its device, the host or a GPU, and makes no code.
class NamingBackend final : public Backend {
 public:
  explicit NamingBackend(bool on_host) : on_host_(on_host) {}
  std::string_view name() const override { return "naming"; }
  std::string target() const override { return "none"; }
  Decision is_available() const override { return Decision::allow(); }
  bool is_native() const override { return false; }
  bool serves(const Device& device) const override {
    return on_host_ ? device.is_cpu() : device.is_cuda();
  }
  bool runs_on_host() const override { return on_host_; }
  const FusionLimits& limits() const override {
    static constexpr FusionLimits kGpuLimits{.longest_row = 64 * 1024,
                                             .few_rows = 64,
                                             .few_columns = 4096,
                                             .small_work = 8192,
                                             .update_parts = 4096,
                                             .update_part_width = 1};
    return on_host_ ? kHostLimits : kGpuLimits;
  }
  Decision can_compile(const loops::Kernel&) const override { return Decision::allow(); }
  std::vector<KernelImage> compile(std::span<const loops::Kernel* const> kernels,
                                   const KernelOptions&) const override {
    std::vector<KernelImage> images;
    for (const loops::Kernel* kernel : kernels) images.push_back(describe(*kernel, *this));
    return images;
  }
  std::vector<std::shared_ptr<const LoadedKernel>> load(
      std::span<const KernelImage> images) const override {
    return std::vector<std::shared_ptr<const LoadedKernel>>(images.size());
  }
  bool launch(std::span<const Launch>, std::span<const int64_t>, Host&) const override {
    return true;
  }

 private:
  const bool on_host_;
};

inline ScheduleOptions naming_options() {
  static const NamingBackend host(true), gpu(false);
  ScheduleOptions options;
  options.backends = {&host, &gpu};
  return options;
}

inline std::string scheduled_and_lowered(const std::string& text) {
  const Graph graph = Graph::parse(text);
  graph.verify();
  Record record;
  const Schedule schedule = make_schedule(graph, naming_options(), record);
  return lower(graph, schedule, std::vector<KernelImage>(schedule.kernels.size())).str();
}

}  // namespace smelt
