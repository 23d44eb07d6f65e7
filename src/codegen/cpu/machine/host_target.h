// The processor of this process as LLVM sees it.
#pragma once

#include <memory>
#include <string>

#include <llvm/Target/TargetMachine.h>

namespace smelt::cpu {

struct HostTarget {
  std::string triple, cpu, features;
  std::string name;       // "avx512", "avx2", "none"
  int vector_bits = 128;  // of the widest registers
  bool masked_tails =
      false;                // loads and stores under a mask are single instructions for every dtype
  int64_t cache_bytes = 0;  // what the caches hold of the results of a kernel
};

// Worked out once per process.
const HostTarget& host_target();

// A target machine borrowed from the process's own; it generates code on one thread at a time and
// goes back when the lease ends. One that an exception went through is not used again.
class TargetLease {
 public:
  TargetLease();
  ~TargetLease();
  TargetLease(const TargetLease&) = delete;
  TargetLease& operator=(const TargetLease&) = delete;

  llvm::TargetMachine& machine() { return *machine_; }

 private:
  std::unique_ptr<llvm::TargetMachine> machine_;
  const int exceptions_;  // under way when the lease began
};

}  // namespace smelt::cpu
