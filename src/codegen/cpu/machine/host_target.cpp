#include "codegen/cpu/machine/host_target.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include <llvm/ADT/StringMap.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Host.h>

#include "base/error.h"

namespace smelt::cpu {
namespace {

// Passes of the code generator that find nothing to do in our loops and take a third of its time.
// They can be left out by LLVM's command line options only.
void leave_out_passes() {
  auto& options = llvm::cl::getRegisteredOptions();
  for (const char* name : {"disable-lsr", "disable-mergeicmps", "disable-partial-libcall-inlining",
                           "disable-constant-hoisting"}) {
    const auto found = options.find(name);
    if (found != options.end()) found->second->addOccurrence(0, name, "true");
  }
}

// The last level, as far as it is ours: a virtual machine is told of the whole cache of its host.
int64_t cache_bytes() {
  const int64_t share = int64_t{32} << 20;  // per core, more than any processor has
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const int64_t last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return last_level > 0 ? std::min(last_level, cores * share) : share;
}

// SMELT_CPU_TARGET=avx2: as if the processor had no more than that. "none" is taken likewise: no
// kernels. Anything else is the processor's best.
std::string_view wanted_target() {
  const char* wanted = std::getenv("SMELT_CPU_TARGET");
  return wanted ? wanted : "";
}

// What LLVM must not use for AVX2, whatever it thinks is fast on this processor.
constexpr std::string_view kBeyondAvx2[] = {"avx512", "avx10", "evex512", "amx"};

bool is_beyond_avx2(std::string_view feature) {
  return std::ranges::any_of(kBeyondAvx2,
                             [&](std::string_view prefix) { return feature.starts_with(prefix); });
}

HostTarget look_at_host() {
  leave_out_passes();
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  HostTarget host;
  host.cache_bytes = cache_bytes();
  host.triple = llvm::sys::getProcessTriple();
  host.cpu = llvm::sys::getHostCPUName().str();
  llvm::StringMap<bool> has = llvm::sys::getHostCPUFeatures();
  const std::string_view wanted = wanted_target();
  if (wanted == "avx2" || wanted == "none")
    for (auto& feature : has)
      if (is_beyond_avx2(feature.first())) feature.second = false;
  if (wanted == "none") has["avx2"] = false;
  for (const auto& feature : has) {
    if (!host.features.empty()) host.features += ',';
    host.features += (feature.second ? "+" : "-") + feature.first().str();
  }
  auto all = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (!has.lookup(name)) return false;
    return true;
  };
  host.name = "none";
  if (all({"avx2", "fma", "f16c"})) {
    host.name = "avx2";
    host.vector_bits = 256;
  }
  if (host.vector_bits == 256 && all({"avx512f", "avx512bw", "avx512dq", "avx512vl"})) {
    host.name = "avx512";
    host.vector_bits = 512;
    host.masked_tails = true;
  }
  return host;
}

std::unique_ptr<llvm::TargetMachine> make_machine() {
  const HostTarget& host = host_target();
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(host.triple, error);
  SMELT_CHECK(target, error);
  llvm::TargetOptions options;
  // Only instructions that carry the `contract` flag may be fused.
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(host.triple, host.cpu, host.features, options, llvm::Reloc::PIC_,
                                  llvm::CodeModel::Small, llvm::CodeGenOptLevel::Less, true));
  SMELT_CHECK(machine, "LLVM has no target machine for " + host.triple);
  return machine;
}

struct Idle {
  std::mutex mutex;
  std::vector<std::unique_ptr<llvm::TargetMachine>> machines;
};

// Leaked: a thread may still compile while the process ends.
Idle& idle() {
  static Idle* const it = new Idle;
  return *it;
}

}  // namespace

const HostTarget& host_target() {
  static const HostTarget* const host = new HostTarget(look_at_host());
  return *host;
}

TargetLease::TargetLease() : exceptions_(std::uncaught_exceptions()) {
  {
    std::lock_guard lock(idle().mutex);
    if (!idle().machines.empty()) {
      machine_ = std::move(idle().machines.back());
      idle().machines.pop_back();
    }
  }
  if (!machine_) machine_ = make_machine();
}

TargetLease::~TargetLease() {
  // LLVM is not written for exceptions. Where its memory ran out, the machine may hold what is freed
  // already, and can't even be destroyed.
  if (std::uncaught_exceptions() > exceptions_) {
    static_cast<void>(machine_.release());
    return;
  }
  try {
    std::lock_guard lock(idle().mutex);
    idle().machines.push_back(std::move(machine_));
  } catch (const std::exception&) {
    // There is no room to keep it: the next lease makes another.
  }
}

}  // namespace smelt::cpu
