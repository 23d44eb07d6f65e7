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

// An object file. The module is used up: its instructions are changed on the way.
std::string generate_object(llvm::Module& module, llvm::TargetMachine& machine);
// An object file made ready to run. An InternalError where it is none.
std::unique_ptr<MachineCode> link_object(const std::string& object);
// As text, for people; the module is used up.
std::string generate_assembly(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace smelt::cpu
