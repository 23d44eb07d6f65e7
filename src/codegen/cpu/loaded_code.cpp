// Object files as code of this process. Equal ones are linked once, for as long as someone holds
// the code.
#include <mutex>
#include <unordered_map>

#include "codegen/cpu/cpu_module.h"
#include "codegen/cpu/machine/machine_code.h"

namespace smelt {
namespace {

using Linked = std::shared_ptr<const cpu::MachineCode>;

class LinkedObjects {
 public:
  Linked link(const std::string& object) {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<const cpu::MachineCode>& entry = linked_[object];
    Linked code = entry.lock();
    if (code) return code;
    entry = code = cpu::link_object(object);
    if (linked_.size() >= next_sweep_) {
      std::erase_if(linked_, [](const auto& item) { return item.second.expired(); });
      next_sweep_ = std::max<size_t>(256, 2 * linked_.size());
    }
    return code;
  }

  // Leaked: threads may compile while the process ends.
  static LinkedObjects& process() {
    static LinkedObjects* const objects = new LinkedObjects;
    return *objects;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<const cpu::MachineCode>> linked_;
  size_t next_sweep_ = 256;
};

class LoadedCode final : public CpuCode {
 public:
  LoadedCode(const KernelImage& image, Linked code, const std::string& entry)
      : code_(std::move(code)) {
    const auto function = [&](const std::string& name) {
      return reinterpret_cast<UnitKernel::Function>(code_->find(name));
    };
    kernel_.run = function(entry);
    if (image.finish_units > 0) kernel_.finish = function(entry + ".finish");
    SMELT_CHECK(!kernel_.finish || image.scratch_bytes == 0, "two parts that both need scratch");
    kernel_.buffers = image.buffers.size();
    kernel_.sizes = image.sizes;
    kernel_.units = image.units;
    kernel_.unit_cost = image.unit_cost;
    kernel_.scratch_bytes = static_cast<size_t>(image.scratch_bytes);
    kernel_.ordered = image.ordered;
    kernel_.finish_units = image.finish_units;
    kernel_.partial_bytes = static_cast<size_t>(image.partial_bytes);
  }
  const UnitKernel& kernel() const override { return kernel_; }

 private:
  Linked code_;
  UnitKernel kernel_;
};

}  // namespace

std::shared_ptr<const CpuCode> load_cpu_image(const KernelImage& image, const std::string& entry) {
  if (image.target != cpu_target())
    throw Error("kernel " + image.name + " was compiled for a processor with " + image.target +
                ", and this one has " + cpu_target() + "; compile the program on this machine");
  return std::make_shared<const LoadedCode>(image, LinkedObjects::process().link(*image.code),
                                            entry);
}

}  // namespace smelt
