// LLVM modules as code in memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

namespace smelt::cpu {

// Code that can be called; it is unmapped with this object.
class MachineCode {
 public:
  virtual ~MachineCode() = default;
  // The address of a function of the module.
  virtual void* find(const std::string& name) const = 0;
  virtual size_t bytes() const = 0;
};

// The module is used up: its instructions are changed on the way.
std::unique_ptr<MachineCode> generate_code(llvm::Module& module, llvm::TargetMachine& machine);
std::string generate_assembly(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace smelt::cpu
