#include "runtime/verify_program.h"

#include <algorithm>

#include "base/error.h"

namespace smelt {
namespace {

class Verifier {
 public:
  explicit Verifier(const Program& program) : program_(program), full_(program.registers) {}

  void run() {
    check(program_.bindings.size() == program_.symbols.symbols().size(), "a symbol is not bound");
    for (const SymbolBinding& binding : program_.bindings) check_binding(binding);
    for (const ProgramInput& input : program_.inputs) fill(input.reg);
    for (const ProgramConstant& constant : program_.constants) fill(constant.reg);
    check_arena();
    for (const Step& step : program_.steps) {
      where_ = step.op;
      check_step(step);
    }
    where_ = "return";
    for (const Register reg : program_.outputs)
      if (reg >= 0) read(reg);
    if (program_.preparation) verify(*program_.preparation);
  }

 private:
  void check(bool good, const std::string& what) const {
    SMELT_CHECK(good, "a program is not well formed: " + what +
                          (where_.empty() ? "" : " (" + where_ + ")"));
  }
  void check_register(Register reg) const {
    check(reg >= 0 && reg < program_.registers, "there is no register " + std::to_string(reg));
  }
  void read(Register reg) const {
    check_register(reg);
    check(full_[reg], "nothing is in register " + std::to_string(reg));
  }
  void fill(Register reg) {
    if (reg < 0) return;
    check_register(reg);
    full_[reg] = true;
  }

  void check_binding(const SymbolBinding& binding) const {
    if (binding.is_given()) return;
    check(binding.input < std::ssize(program_.inputs) && binding.dim >= 0 &&
              binding.dim < program_.inputs[binding.input].type.rank(),
          "a symbol is bound to a size that is not there");
  }

  void check_arena() const {
    const Arena& arena = program_.arena;
    check(arena.offsets.empty() || arena.offsets.size() == arena.buffers.size(),
          "a buffer of the arena has no place");
    for (size_t i = 0; i < arena.offsets.size(); ++i)
      check(arena.offsets[i] < 0 ||
                (arena.buffers[i].bytes.is_known() &&
                 arena.offsets[i] + arena.buffers[i].bytes.known() <= arena.bytes),
            "a buffer does not lie in the arena");
  }

  void check_step(const Step& step) {
    for (const Arg& arg : step.args)
      each_ref(arg, [&](Ref ref) {
        if (ref.id >= 0) read(ref.id);
      });
    check(step.types.size() == step.results.size(), "a result has no type");
    const auto fits = [&](const auto& items) {
      return items.empty() || items.size() == step.results.size();
    };
    check(fits(step.reuse) && fits(step.into) && fits(step.arena), "a result has no plan");
    for (const Register reg : step.reuse)
      if (reg >= 0) read(reg);
    for (const Register reg : step.into)
      if (reg >= 0) read(reg);
    check(std::ranges::all_of(
              step.arena,
              [&](int32_t buffer) { return buffer < std::ssize(program_.arena.buffers); }),
          "there is no such buffer in the arena");
    check(step.in_place_op.empty() ||
              (step.taken >= 0 && step.taken < std::ssize(step.args) && !step.reuse.empty()),
          "an op in place has no argument to work in");
    if (step.kernel >= 0) check_kernel(step);
    check(!step.with_next || step.kernel >= 0, "only kernels are launched together");
    for (const Register reg : step.results) fill(reg);
    for (const Register reg : step.release) {
      read(reg);
      full_[reg] = false;
    }
  }

  void check_kernel(const Step& step) const {
    using Buffer = KernelImage::Buffer;
    check(step.kernel < std::ssize(program_.kernels), "there is no such kernel");
    const KernelImage& kernel = program_.kernels[step.kernel];
    const auto are = [&](auto... kinds) {
      return (std::ranges::count(kernel.buffers, kinds) + ...);
    };
    check(std::ssize(step.args) == are(Buffer::input, Buffer::updated) + kernel.params,
          "arguments are not those of the kernel");
    check(std::ssize(step.results) == are(Buffer::output, Buffer::updated, Buffer::zeroed),
          "results are not those of the kernel");
    check(std::ranges::none_of(step.results, [](Register reg) { return reg < 0; }),
          "a kernel writes nowhere");
    check(step.reuse.size() == step.results.size() && step.into.size() == step.results.size(),
          "a result has no plan");
  }

  const Program& program_;
  std::vector<bool> full_;  // by register: something is in it
  std::string where_;
};

}  // namespace

void verify(const Program& program) { Verifier(program).run(); }

}  // namespace smelt
