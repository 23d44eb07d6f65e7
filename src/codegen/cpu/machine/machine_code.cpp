// The object that the code generator writes stays in memory and is linked by RuntimeDyld into one
// mapping of its own: first code, then constants, then data. That is a fraction of the work of an
// ORC session (no symbol tables, no threads, no lookups), and unmapping is all there is to freeing.
#include "codegen/cpu/machine/machine_code.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <llvm/ADT/SmallVector.h>
#include <llvm/ExecutionEngine/RTDyldMemoryManager.h>
#include <llvm/ExecutionEngine/RuntimeDyld.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>

#include "base/error.h"
#include "codegen/cpu/machine/simplify_ir.h"

namespace smelt::cpu {
namespace {

// One mapping for a module. RuntimeDyld says beforehand how much it needs of each kind.
class CodeMemory final : public llvm::RTDyldMemoryManager {
 public:
  ~CodeMemory() override {
    if (base_) munmap(base_, size_);
  }

  bool needsToReserveAllocationSpace() override { return true; }

  void reserveAllocationSpace(uintptr_t code, llvm::Align code_align, uintptr_t constants,
                              llvm::Align constants_align, uintptr_t data,
                              llvm::Align data_align) override {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    auto pages = [&](uintptr_t bytes, llvm::Align align) {
      return llvm::alignTo(bytes + align.value(), page);
    };
    code_size_ = pages(code, code_align);
    const uintptr_t constants_size = pages(constants, constants_align);
    size_ = code_size_ + constants_size + pages(data, data_align);
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SMELT_CHECK(memory != MAP_FAILED, "no memory for machine code");
    base_ = static_cast<uint8_t*>(memory);
    next_code_ = base_;
    next_constants_ = base_ + code_size_;
    next_data_ = next_constants_ + constants_size;
  }

  uint8_t* allocateCodeSection(uintptr_t size, unsigned align, unsigned, llvm::StringRef) override {
    return take(next_code_, size, align);
  }
  uint8_t* allocateDataSection(uintptr_t size, unsigned align, unsigned, llvm::StringRef,
                               bool constant) override {
    return take(constant ? next_constants_ : next_data_, size, align);
  }

  // Code refers to functions of the C library only.
  uint64_t getSymbolAddress(const std::string& name) override {
    void* address = dlsym(RTLD_DEFAULT, name.c_str());
    if (!address) {
      static void* const library = dlopen("libm.so.6", RTLD_LAZY | RTLD_LOCAL);
      if (library) address = dlsym(library, name.c_str());
    }
    SMELT_CHECK(address, "machine code refers to " + name + ", which the process does not have");
    return reinterpret_cast<uint64_t>(address);
  }

  bool finalizeMemory(std::string*) override {
    // Relocations are applied by now; nothing in the mapping changes afterwards but data.
    SMELT_CHECK(mprotect(base_, code_size_, PROT_READ | PROT_EXEC) == 0, "cannot protect code");
    return false;
  }

  size_t bytes() const { return size_; }

 private:
  static uint8_t* take(uint8_t*& next, uintptr_t size, unsigned align) {
    const auto at = llvm::alignTo(reinterpret_cast<uintptr_t>(next), align ? align : 16);
    next = reinterpret_cast<uint8_t*>(at + size);
    return reinterpret_cast<uint8_t*>(at);
  }

  uint8_t* base_ = nullptr;
  size_t size_ = 0, code_size_ = 0;
  uint8_t *next_code_ = nullptr, *next_constants_ = nullptr, *next_data_ = nullptr;
};

class LinkedCode final : public MachineCode {
 public:
  explicit LinkedCode(llvm::StringRef object_bytes) : linker_(memory_, memory_) {
    auto object =
        llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object_bytes, "kernels"));
    SMELT_CHECK(bool(object), llvm::toString(object.takeError()));
    linker_.loadObject(**object);
    SMELT_CHECK(!linker_.hasError(), linker_.getErrorString().str());
    linker_.finalizeWithMemoryManagerLocking();
    SMELT_CHECK(!linker_.hasError(), linker_.getErrorString().str());
  }

  void* find(const std::string& name) const override {
    void* address = linker_.getSymbolLocalAddress(name);
    SMELT_CHECK(address, "no machine code for " + name);
    return address;
  }
  size_t bytes() const override { return memory_.bytes(); }

 private:
  CodeMemory memory_;
  llvm::RuntimeDyld linker_;
};

}  // namespace

std::string generate_object(llvm::Module& module, llvm::TargetMachine& machine) {
  simplify_ir(module);
  llvm::SmallVector<char, 0> object;
  {
    llvm::raw_svector_ostream out(object);
    llvm::legacy::PassManager passes;
    llvm::MCContext* context = nullptr;
    SMELT_CHECK(!machine.addPassesToEmitMC(passes, context, out), "no object emission");
    passes.run(module);
  }
  return {object.begin(), object.end()};
}

std::unique_ptr<MachineCode> link_object(const std::string& object) {
  return std::make_unique<LinkedCode>(object);
}

std::string generate_assembly(llvm::Module& module, llvm::TargetMachine& machine) {
  simplify_ir(module);
  llvm::SmallVector<char, 0> text;
  {
    llvm::raw_svector_ostream out(text);
    llvm::legacy::PassManager passes;
    SMELT_CHECK(
        !machine.addPassesToEmitFile(passes, out, nullptr, llvm::CodeGenFileType::AssemblyFile),
        "no assembly emission");
    passes.run(module);
  }
  return {text.begin(), text.end()};
}

}  // namespace smelt::cpu
