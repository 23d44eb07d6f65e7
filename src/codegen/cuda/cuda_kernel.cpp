#include "codegen/cuda/cuda_kernel.h"

#include <algorithm>
#include <atomic>

#include "codegen/cuda/joined_kernels.h"

namespace smelt::cuda {
namespace {

constexpr int64_t kBlocksInFlight =
    1056;  // of kernels with a piece of the workspace for each block

constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;  // CUdevice_attribute

uint64_t next_number() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
int64_t blocks_of(int64_t items, int64_t each) { return (items + each - 1) / each; }

}  // namespace

WithContext::WithContext(CuContext context) {
  check_driver(driver().cuCtxPushCurrent(context), "cuCtxPushCurrent");
}
WithContext::~WithContext() {
  CuContext popped = nullptr;
  driver().cuCtxPopCurrent(&popped);
}

CuContext active_context(int device) {
  const Driver& api = driver();
  CuDevice handle = 0;
  unsigned flags = 0;
  int active = 0;
  CuContext context = nullptr;
  if (api.cuDeviceGet(&handle, std::max(device, 0)) != 0) return nullptr;
  if (api.cuDevicePrimaryCtxGetState(handle, &flags, &active) != 0 || active == 0) return nullptr;
  // It is kept for as long as the process lives, as PyTorch does.
  return api.cuDevicePrimaryCtxRetain(&context, handle) == 0 ? context : nullptr;
}

std::string current_architecture() {
  const std::string otherwise = "sm_90";
  if (!has_driver()) return otherwise;
  const Driver& api = driver();
  CuContext context = nullptr;
  CuDevice device = 0;
  int major = 0, minor = 0;
  if (api.cuCtxGetCurrent(&context) != 0) return otherwise;
  if (context ? api.cuCtxGetDevice(&device) != 0 : api.cuDeviceGet(&device, 0) != 0)
    return otherwise;
  if (api.cuDeviceGetAttribute(&major, kCapabilityMajor, device) != 0 ||
      api.cuDeviceGetAttribute(&minor, kCapabilityMinor, device) != 0)
    return otherwise;
  return "sm_" + std::to_string(major) + std::to_string(minor);
}

void ensure_context(CuContext context) {
  CuContext current = nullptr;
  if (driver().cuCtxGetCurrent(&current) == 0 && !current)
    check_driver(driver().cuCtxPushCurrent(context), "cuCtxPushCurrent");
}

CudaKernel::CudaKernel(const KernelImage& image)
    : number_(next_number()),
      architecture_(image.target),
      device_(image.device),
      packed_(image.code),
      code_(CudaCode::unpack(*image.code)),
      buffers_(image.buffers),
      sizes_(image.sizes),
      params_(image.params),
      long_index_(needs_long_index(code_.facts)),
      context_(active_context(image.device.index)),
      joined_(std::make_unique<JoinedKernels>()) {
  if (context_) functions(false, long_index_);
}

CudaKernel::~CudaKernel() {
  // At the end of the process the driver may be gone before.
  for (const auto& [variant, functions] : functions_) {
    CuContext current = nullptr;
    if (!context_ || driver().cuCtxGetCurrent(&current) != 0) return;
    if (driver().cuCtxPushCurrent(context_) != 0) return;
    driver().cuModuleUnload(functions.module);
    driver().cuCtxPopCurrent(&current);
  }
}

CudaKernel::Functions CudaKernel::load(const std::string& machine_code) const {
  const Driver& api = driver();
  Functions made;
  check_driver(api.cuModuleLoadData(&made.module, machine_code.data()), "cuModuleLoadData");
  const std::string& entry = code_.facts.entry;
  check_driver(api.cuModuleGetFunction(&made.main, made.module, entry.c_str()),
               "cuModuleGetFunction");
  if (code_.facts.slices > 1)
    check_driver(api.cuModuleGetFunction(&made.finish, made.module, (entry + "_finish").c_str()),
                 "cuModuleGetFunction");
  return made;
}

const CudaKernel::Functions& CudaKernel::functions(bool unaligned, bool long_index) const {
  std::lock_guard lock(mutex_);
  const auto found = functions_.find({unaligned, long_index});
  if (found != functions_.end()) return found->second;
  if (!context_) context_ = active_context(device_.index);
  if (!context_) throw Error("there is no CUDA context on " + device_.str());
  const WithContext current(context_);
  const bool usual = !unaligned && long_index == long_index_;
  const Functions made = load(usual ? code_.machine_code
                                    : compile_text(code_.text, {.architecture = architecture_,
                                                                .contract = code_.facts.contract,
                                                                .unaligned = unaligned,
                                                                .long_index = long_index}));
  return functions_.emplace(std::pair(unaligned, long_index), made).first->second;
}

CuContext CudaKernel::context() const {
  std::lock_guard lock(mutex_);
  if (!context_) context_ = active_context(device_.index);
  if (!context_) throw Error("there is no CUDA context on " + device_.str());
  return context_;
}

Start CudaKernel::start(const Launch& launch, std::span<const int64_t> symbols) const {
  const Facts& facts = code_.facts;
  Start start;
  const int64_t items = facts.items.evaluate(symbols);
  if (items <= 0) return start;
  for (size_t i = 0; i < buffers_.size(); ++i)
    start.unaligned =
        start.unaligned || reinterpret_cast<uintptr_t>(launch.buffers[i]) % facts.alignment[i] != 0;
  start.long_index = long_index_;
  for (size_t i = 0; i < facts.reach.size() && !start.long_index; ++i)
    start.long_index = facts.reach[i].evaluate(symbols) >= kShortIndex;

  start.blocks = blocks_of(items, facts.each);
  if (!facts.scratch_bytes.empty()) start.blocks = std::min(start.blocks, kBlocksInFlight);
  for (const Size& each : facts.scratch_bytes)
    start.workspace_bytes += round_up(each.evaluate(symbols) * start.blocks * facts.each, 16);
  start.points = facts.slices > 1 ? facts.points.evaluate(symbols) : 0;
  for (const int64_t each : facts.partial_bytes)
    start.workspace_bytes += round_up(each * facts.slices * start.points, 16);

  std::vector<uint64_t>& values = start.arguments;
  values.reserve(buffers_.size() + sizes_.size() + static_cast<size_t>(params_) + 1);
  for (size_t i = 0; i < buffers_.size(); ++i)
    if (buffers_[i] != KernelImage::Buffer::scratch)
      values.push_back(reinterpret_cast<uintptr_t>(launch.buffers[i]));
  for (const Size& size : sizes_) values.push_back(static_cast<uint64_t>(size.evaluate(symbols)));
  values.insert(values.end(), launch.params, launch.params + params_);
  return start;
}

void CudaKernel::launch(Start start, Host& host) const {
  if (start.blocks == 0) return;
  const Facts& facts = code_.facts;
  const Functions& functions = this->functions(start.unaligned, start.long_index);
  ensure_context(context_);
  std::shared_ptr<void> memory;
  if (start.workspace_bytes > 0) {
    memory = host.device_memory(device_, static_cast<size_t>(start.workspace_bytes));
    start.arguments.push_back(reinterpret_cast<uintptr_t>(memory.get()));
  }
  std::vector<void*> arguments;  // eight bytes each
  arguments.reserve(start.arguments.size());
  for (uint64_t& value : start.arguments) arguments.push_back(&value);

  auto* const stream = static_cast<CuStream>(host.stream(device_));
  const Driver& api = driver();
  check_driver(api.cuLaunchKernel(functions.main, static_cast<unsigned>(start.blocks),
                                  static_cast<unsigned>(facts.slices), 1,
                                  static_cast<unsigned>(facts.threads), 1, 1, 0, stream,
                                  arguments.data(), nullptr),
               facts.entry.c_str());
  if (facts.slices == 1) return;
  check_driver(api.cuLaunchKernel(functions.finish,
                                  static_cast<unsigned>(blocks_of(start.points, facts.finish_each)),
                                  1, 1, static_cast<unsigned>(facts.finish_threads), 1, 1, 0,
                                  stream, arguments.data(), nullptr),
               facts.entry.c_str());
}

}  // namespace smelt::cuda
