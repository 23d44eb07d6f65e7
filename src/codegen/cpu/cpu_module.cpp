#include "codegen/cpu/cpu_module.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include <llvm/IR/LLVMContext.h>

#include "base/on_threads.h"
#include "codegen/cpu/emitter.h"
#include "codegen/cpu/machine/host_target.h"
#include "codegen/cpu/machine/machine_code.h"
#include "codegen/cpu/plan.h"

namespace smelt {
namespace {

// A kernel with its object file, once that is made. The source is kept so that assembly can be shown
// when someone asks.
struct Compiled final : UnmadeCode {
  loops::Kernel source;  // as it was planned
  CpuOptions options;
  KernelImage facts;  // without code, which would hold this

  // Whoever makes what follows holds the mutex; nobody reads it before.
  mutable std::mutex mutex;
  mutable std::atomic<bool> is_made = false;
  mutable std::string object;                   // none where others share it
  mutable std::shared_ptr<const CpuCode> code;  // linked by the thread that compiled it
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
  CpuOptions that_matter = options;
  if (size_params(kernel).empty()) that_matter.likely_symbols.clear();
  return {hash, std::move(that_matter), nameless.str()};
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

std::shared_ptr<const Compiled> plan_one(const loops::Kernel& kernel, const CpuOptions& options) {
  auto compiled = std::make_shared<Compiled>();
  compiled->source = cpu::kernel_to_plan(kernel, options, cpu::host_target());
  compiled->options = options;
  const cpu::Plan plan = cpu::make_plan(compiled->source, options, cpu::host_target());
  KernelImage& facts = compiled->facts;
  facts = describe(kernel, cpu_backend());
  facts.units = plan.units;
  facts.unit_cost = plan.unit_cost;
  facts.scratch_bytes = static_cast<int64_t>(plan.scratch_bytes);
  if (plan.slices > 1) {
    facts.finish_units = plan.items.known();
    facts.partial_bytes = static_cast<int64_t>(plan.partial_bytes);
  }
  return compiled;
}

// LLVM's code generator takes longer to begin and to end than a small kernel takes in between, so
// that kernels which need no file of their own share one.
constexpr size_t kMostInObject = 8;

// An exception that went through LLVM may have left it in the middle of a change: what it was working
// on is not taken apart then.
struct Workpiece {
  std::unique_ptr<llvm::LLVMContext> context = std::make_unique<llvm::LLVMContext>();
  std::unique_ptr<llvm::Module> module = std::make_unique<llvm::Module>("kernel", *context);
  const int exceptions = std::uncaught_exceptions();

  ~Workpiece() {
    if (std::uncaught_exceptions() == exceptions) return;
    static_cast<void>(module.release());
    static_cast<void>(context.release());
  }
};

// Sorted by address, so that no two threads wait for each other.
void make_code(std::span<const Compiled* const> group) {
  std::vector<std::unique_lock<std::mutex>> locks;
  std::vector<const Compiled*> missing;
  for (const Compiled* compiled : group) {
    locks.emplace_back(compiled->mutex);
    if (!compiled->is_made) missing.push_back(compiled);
  }
  if (missing.empty()) return;
  const bool is_one = missing.size() == 1;
  const auto entry = [&](size_t i) {
    return is_one ? std::string(kKernelEntry) : kKernelEntry + std::to_string(i);
  };
  cpu::TargetLease lease;
  const Workpiece workpiece;
  llvm::Module& module = *workpiece.module;
  set_target(module, lease.machine());
  for (size_t i = 0; i < missing.size(); ++i) {
    const Compiled& compiled = *missing[i];
    const cpu::Plan plan = cpu::make_plan(compiled.source, compiled.options, cpu::host_target());
    emit(compiled.source, plan, compiled.options, module, entry(i));
  }
  const std::string object = cpu::generate_object(module, lease.machine());
  for (size_t i = 0; i < missing.size(); ++i) {
    KernelImage image = missing[i]->facts;
    image.code = std::shared_ptr<const std::string>(std::shared_ptr<void>(), &object);
    missing[i]->code = load_cpu_image(image, entry(i));
  }
  if (is_one) missing[0]->object = object;
  for (const Compiled* compiled : missing) compiled->is_made = true;
}

KernelImage image_of(const loops::Kernel& kernel, const std::shared_ptr<const Compiled>& compiled) {
  KernelImage image = compiled->facts;
  image.name = kernel.name;
  if (compiled->is_made && !compiled->object.empty())
    image.code = std::shared_ptr<const std::string>(compiled, &compiled->object);
  else
    image.unmade = compiled;
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
      const Workpiece workpiece;
      llvm::Module& module = *workpiece.module;
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

// Those among them that have no code are given theirs, so many in one object.
void make_all(std::vector<const Compiled*> compiled, size_t together) {
  std::erase_if(compiled, [](const Compiled* one) { return one->is_made.load(); });
  std::ranges::sort(compiled);
  const auto rest = std::ranges::unique(compiled);
  compiled.erase(rest.begin(), rest.end());
  if (compiled.empty()) return;
  const std::span<const Compiled* const> all = compiled;
  const size_t threads = std::max<size_t>(std::thread::hardware_concurrency(), 1);
  together = std::clamp<size_t>((all.size() + threads - 1) / threads, 1, together);
  on_threads((all.size() + together - 1) / together, [&](size_t i) {
    const size_t first = i * together;
    make_code(all.subspan(first, std::min(together, all.size() - first)));
  });
}

std::vector<std::shared_ptr<const Compiled>> compile_all(
    std::span<const loops::Kernel* const> kernels, const CpuOptions& options, bool later) {
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
  for (size_t i : missing) compiled[i] = plan_one(*kernels[i], options);
  for (const auto& [other, first] : same) compiled[other] = compiled[first];
  if (!later) {
    std::vector<const Compiled*> all;
    for (const auto& one : compiled) all.push_back(one.get());
    make_all(std::move(all), 1);
  }
  for (size_t i : missing) CompiledKernels::process().add(keys[i], compiled[i]);
  return compiled;
}

}  // namespace

std::vector<KernelImage> make_cpu_images(std::span<const loops::Kernel* const> kernels,
                                         const CpuOptions& options, bool later) {
  const auto compiled = compile_all(kernels, options, later);
  std::vector<KernelImage> images;
  for (size_t i = 0; i < kernels.size(); ++i) images.push_back(image_of(*kernels[i], compiled[i]));
  return images;
}

std::shared_ptr<const CpuModule> compile_cpu(std::span<const loops::Kernel* const> kernels,
                                             const CpuOptions& options) {
  return std::make_shared<Module>(compile_all(kernels, options, /*later=*/false));
}

std::vector<std::shared_ptr<const LoadedKernel>> load_cpu_images(
    std::span<const KernelImage> images) {
  const auto unmade_in = [](const KernelImage& image) {
    return static_cast<const Compiled*>(image.unmade.get());
  };
  std::vector<const Compiled*> unmade;
  for (const KernelImage& image : images)
    if (image.unmade) unmade.push_back(unmade_in(image));
  make_all(std::move(unmade), kMostInObject);
  std::vector<std::shared_ptr<const LoadedKernel>> loaded;
  loaded.reserve(images.size());
  for (const KernelImage& image : images)
    loaded.push_back(image.unmade ? unmade_in(image)->code : load_cpu_image(image));
  return loaded;
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
    if (inst.op == loops::Op::random_bits || inst.op == loops::Op::random_normal)
      return Decision::forbid("random numbers of a GPU");
  }
  if (kernel.dims() >= cpu::kPoint) return Decision::forbid("too many dimensions");
  return Decision::allow();
}

std::string cpu_target() { return cpu::host_target().name; }

}  // namespace smelt
