#include "codegen/cpu/cpu_module.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_map>

#include <llvm/IR/LLVMContext.h>

#include "codegen/cpu/emitter.h"
#include "codegen/cpu/machine/host_target.h"
#include "codegen/cpu/machine/machine_code.h"
#include "codegen/cpu/plan.h"

namespace smelt {
namespace {

// A kernel with its object file. The source is kept so that assembly can be shown when someone
// asks.
struct Compiled {
  loops::Kernel source;  // as it was planned
  CpuOptions options;
  std::string object;
  KernelImage facts;                    // without code, which would hold this
  std::shared_ptr<const CpuCode> code;  // linked by the thread that compiled it
};

struct Key {
  uint64_t hash;
  CpuOptions options;
  std::string text;  // without the name
};

Key key_of(const loops::Kernel& kernel, const CpuOptions& options) {
  loops::Kernel nameless = kernel;
  nameless.name.clear();
  const uint64_t hash =
      kernel.hash() * 31 + static_cast<uint64_t>(options.vector_bits) * 2 + options.contract;
  return {hash, options, nameless.str()};
}

// What is compiled and still held by someone.
class CompiledKernels {
 public:
  std::shared_ptr<const Compiled> find(const Key& key) {
    std::lock_guard lock(mutex_);
    const auto [begin, end] = entries_.equal_range(key.hash);
    for (auto it = begin; it != end;) {
      std::shared_ptr<const Compiled> compiled = it->second.compiled.lock();
      if (compiled && it->second.text == key.text && it->second.options == key.options)
        return compiled;
      it = compiled ? std::next(it) : entries_.erase(it);
    }
    return nullptr;
  }

  void add(const Key& key, const std::shared_ptr<const Compiled>& compiled) {
    std::lock_guard lock(mutex_);
    if (entries_.size() >= next_sweep_) {
      std::erase_if(entries_, [](const auto& entry) { return entry.second.compiled.expired(); });
      next_sweep_ = std::max<size_t>(256, 2 * entries_.size());
    }
    entries_.emplace(key.hash, Entry{key.text, key.options, compiled});
  }

  // Leaked: threads may compile while the process ends.
  static CompiledKernels& process() {
    static CompiledKernels* const cache = new CompiledKernels;
    return *cache;
  }

 private:
  struct Entry {
    std::string text;
    CpuOptions options;
    std::weak_ptr<const Compiled> compiled;
  };
  std::mutex mutex_;
  std::unordered_multimap<uint64_t, Entry> entries_;
  size_t next_sweep_ = 256;
};

void set_target(llvm::Module& module, llvm::TargetMachine& machine) {
  module.setDataLayout(machine.createDataLayout());
  module.setTargetTriple(cpu::host_target().triple);
}

// One function, or two where reductions are done in slices.
void emit(const loops::Kernel& kernel, const cpu::Plan& plan, const CpuOptions& options,
          llvm::Module& module, const std::string& name) {
  using Part = cpu::Emitter::Part;
  if (plan.slices == 1) return cpu::Emitter(kernel, plan, options, module, name, Part::whole).run();
  cpu::Emitter(kernel, plan, options, module, name, Part::slices).run();
  cpu::Emitter(kernel, plan, options, module, name + ".finish", Part::finish).run();
}

std::shared_ptr<const Compiled> compile_one(const loops::Kernel& kernel,
                                            const CpuOptions& options) {
  auto compiled = std::make_shared<Compiled>();
  compiled->source = cpu::kernel_to_plan(kernel, options, cpu::host_target());
  compiled->options = options;
  const cpu::Plan plan = cpu::make_plan(compiled->source, options, cpu::host_target());
  cpu::TargetLease lease;
  llvm::LLVMContext context;
  llvm::Module module("kernel", context);
  set_target(module, lease.machine());
  emit(compiled->source, plan, options, module, "kernel");
  compiled->object = cpu::generate_object(module, lease.machine());
  KernelImage& facts = compiled->facts;
  facts = describe(kernel, cpu_backend());
  facts.units = plan.units;
  facts.unit_cost = plan.unit_cost;
  facts.scratch_bytes = static_cast<int64_t>(plan.scratch_bytes);
  if (plan.slices > 1) {
    facts.finish_units = plan.items.known();
    facts.partial_bytes = static_cast<int64_t>(plan.partial_bytes);
  }
  KernelImage image = facts;
  image.code = std::shared_ptr<const std::string>(std::shared_ptr<void>(), &compiled->object);
  compiled->code = load_cpu_image(image);
  return compiled;
}

KernelImage image_of(const loops::Kernel& kernel, const std::shared_ptr<const Compiled>& compiled) {
  KernelImage image = compiled->facts;
  image.name = kernel.name;
  image.code = std::shared_ptr<const std::string>(compiled, &compiled->object);
  return image;
}

class Module final : public CpuModule {
 public:
  explicit Module(std::vector<std::shared_ptr<const Compiled>> kernels)
      : kernels_(std::move(kernels)) {}
  const UnitKernel& kernel(size_t i) const override { return kernels_[i]->code->kernel(); }

  std::string assembly() const override {
    std::string text;
    for (const auto& compiled : kernels_) {
      cpu::TargetLease lease;
      llvm::LLVMContext context;
      llvm::Module module("kernel", context);
      set_target(module, lease.machine());
      const cpu::Plan plan =
          cpu::make_plan(compiled->source, compiled->options, cpu::host_target());
      emit(compiled->source, plan, compiled->options, module, compiled->source.name);
      text += cpu::generate_assembly(module, lease.machine());
    }
    return text;
  }

 private:
  std::vector<std::shared_ptr<const Compiled>> kernels_;
};

// Runs jobs 0 .. count-1 on this thread and a few more.
template <class Job>
void run_all(size_t count, const Job& job) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        job(i);
      } catch (...) {
        std::lock_guard lock(mutex);
        error = std::current_exception();
      }
    }
  };
  const size_t threads = std::min<size_t>({count, std::thread::hardware_concurrency(), 16});
  std::vector<std::thread> others;
  for (size_t i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  if (error) std::rethrow_exception(error);
}

std::vector<std::shared_ptr<const Compiled>> compile_all(
    std::span<const loops::Kernel* const> kernels, const CpuOptions& options) {
  std::vector<std::shared_ptr<const Compiled>> compiled(kernels.size());
  std::vector<Key> keys;
  std::vector<size_t> missing;                  // the first of each that is not there yet
  std::vector<std::pair<size_t, size_t>> same;  // a later one, and the first
  for (size_t i = 0; i < kernels.size(); ++i) {
    keys.push_back(key_of(*kernels[i], options));
    compiled[i] = CompiledKernels::process().find(keys[i]);
    if (compiled[i]) continue;
    const auto first = std::find_if(missing.begin(), missing.end(), [&](size_t j) {
      return keys[j].hash == keys[i].hash && keys[j].text == keys[i].text;
    });
    if (first == missing.end())
      missing.push_back(i);
    else
      same.emplace_back(i, *first);
  }
  run_all(missing.size(),
          [&](size_t i) { compiled[missing[i]] = compile_one(*kernels[missing[i]], options); });
  for (size_t i : missing) CompiledKernels::process().add(keys[i], compiled[i]);
  for (const auto& [later, first] : same) compiled[later] = compiled[first];
  return compiled;
}

}  // namespace

std::vector<KernelImage> make_cpu_images(std::span<const loops::Kernel* const> kernels,
                                         const CpuOptions& options) {
  const auto compiled = compile_all(kernels, options);
  std::vector<KernelImage> images;
  for (size_t i = 0; i < kernels.size(); ++i) images.push_back(image_of(*kernels[i], compiled[i]));
  return images;
}

std::shared_ptr<const CpuModule> compile_cpu(std::span<const loops::Kernel* const> kernels,
                                             const CpuOptions& options) {
  return std::make_shared<Module>(compile_all(kernels, options));
}

Decision can_compile_cpu(const loops::Kernel& kernel) {
  auto fits = [](DType dtype) {
    switch (dtype) {
      case DType::f8e5m2:
      case DType::f8e4m3fn:
      case DType::f8e5m2fnuz:
      case DType::f8e4m3fnuz: return false;
      // Without the instructions, conversions are calls to functions that a process may not have.
      case DType::f16: return cpu::host_target().vector_bits > 128;
      default: return !is_complex(dtype);
    }
  };
  for (const loops::Buffer& buffer : kernel.buffers) {
    if (!fits(buffer.dtype))
      return Decision::forbid(std::string(name_of(buffer.dtype)) + " is not supported");
  }
  for (const loops::Inst& inst : kernel.insts) {
    if (!fits(inst.dtype))
      return Decision::forbid(std::string(name_of(inst.dtype)) + " is not supported");
    const bool half =
        inst.op == loops::Op::reduce &&
        accumulate_of(kernel.insts[inst.args[0]].dtype) != kernel.insts[inst.args[0]].dtype;
    if (half) return Decision::forbid("a reduction in half precision");
  }
  if (kernel.dims() >= cpu::kPoint) return Decision::forbid("too many dimensions");
  return Decision::allow();
}

std::string cpu_target() { return cpu::host_target().name; }

}  // namespace smelt
