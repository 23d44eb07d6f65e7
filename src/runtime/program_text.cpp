// The text form; parse_program.cpp reads it. A line for each symbol, guard, input, constant, piece
// of code, kernel, buffer of the arena and step. What is not said is as a Step or KernelImage
// begins:
//
//   program 4 registers asks "aten::div.Tensor"
//   symbol s0 = 8 "batch" of input 0 dim 1
//   guard s0 <= 64  # model.py:12
//   input %0: f32[s0, 4] = 0 0
//   const %1 = "9f3ac1"
//   code "..."
//   kernel "exp" "cpu" "avx512" cpu code 0 buffers [input, output] sizes [s0] units s0 cost 7
//   arena 128 bytes
//   buffer 64 first 0 last 2 at 0
//   step "exp" kernel 0 [%0] -> [%2: f32[s0, 4]] release [%0] reuse [_] into [_]
//   step "aten::mm" [%2, %1] -> [%3: f32[s0, 4]] offset 3 visible
//   return [%3, _]
//   prepared by
//   program ...
#include "runtime/program_text.h"

#include <algorithm>
#include <map>

#include "base/reader.h"
#include "runtime/program_words.h"

namespace smelt {
namespace {

std::string name(Register reg) { return reg < 0 ? "_" : "%" + std::to_string(reg); }

template <class Items, class Print>
std::string list(const Items& items, const Print& print) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : ", ") + print(item);
  return "[" + text + "]";
}

std::string names(const std::vector<Register>& registers) { return list(registers, name); }

class Printer {
 public:
  explicit Printer(const Program& program) : program_(program) {}

  std::string run() {
    line(
        "program " + std::to_string(program_.registers) + " registers" +
        (program_.asks_default_float.empty() ? "" : " asks " + quote(program_.asks_default_float)));
    print_symbols();
    for (const ProgramInput& input : program_.inputs)
      line("input " + name(input.reg) + ": " + input.type.str() + " = " +
           std::to_string(input.source) + " " + std::to_string(input.index));
    for (const ProgramConstant& constant : program_.constants)
      line("const " + name(constant.reg) + " = " + quote(constant.digest));
    for (const KernelImage& kernel : program_.kernels) print_code(kernel);
    for (const KernelImage& kernel : program_.kernels) print_kernel(kernel);
    print_arena();
    for (const Step& step : program_.steps) print_step(step);
    line("return " + names(program_.outputs));
    if (program_.preparation) text_ += "prepared by\n" + to_text(*program_.preparation);
    return std::move(text_);
  }

 private:
  void line(const std::string& text) { text_ += text + "\n"; }

  static std::string binding_text(const SymbolBinding& binding) {
    if (binding.is_given()) return " given";
    return " of input " + std::to_string(binding.input) + " dim " + std::to_string(binding.dim);
  }

  void print_symbols() {
    for (size_t i = 0; i < program_.symbols.symbols().size(); ++i) {
      const Symbol& symbol = program_.symbols.symbols()[i];
      line("symbol s" + std::to_string(i) + " = " + std::to_string(symbol.hint) + " " +
           quote(symbol.name) + binding_text(program_.bindings[i]));
    }
    for (const Guard& guard : program_.symbols.guards()) {
      std::string where = guard.where;
      std::replace(where.begin(), where.end(), '\n', ' ');
      line("guard " + guard.str() + (where.empty() ? "" : "  # " + where));
    }
  }

  // Once, however many kernels share it.
  void print_code(const KernelImage& kernel) {
    if (kernel.code && codes_.emplace(kernel.code.get(), codes_.size()).second)
      line("code " + quote(*kernel.code));
  }

  void print_kernel(const KernelImage& kernel) {
    std::string text = "kernel " + quote(kernel.name) + " " + quote(kernel.backend) + " " +
                       quote(kernel.target) + " " + kernel.device.str();
    if (kernel.code) text += " code " + std::to_string(codes_.at(kernel.code.get()));
    text += " buffers " + list(kernel.buffers, [](KernelImage::Buffer buffer) {
              return std::string(word_of(buffer));
            });
    text += " sizes " + list(kernel.sizes, [](const Size& size) { return size.str(); });
    const auto add = [&](const char* word, const Size& size) {
      if (!size.is(0)) text += std::string(" ") + word + " " + size.str();
    };
    add("params", kernel.params);
    add("units", kernel.units);
    add("cost", kernel.unit_cost);
    add("scratch", kernel.scratch_bytes);
    add("finish", kernel.finish_units);
    add("partial", kernel.partial_bytes);
    line(text + (kernel.ordered ? " ordered" : ""));
  }

  void print_arena() {
    const Arena& arena = program_.arena;
    if (arena.buffers.empty()) return;
    line("arena " + std::to_string(arena.bytes) + " bytes");
    for (size_t i = 0; i < arena.buffers.size(); ++i) {
      const Arena::Buffer& buffer = arena.buffers[i];
      line("buffer " + buffer.bytes.str() + " first " + std::to_string(buffer.first) + " last " +
           std::to_string(buffer.last) +
           (arena.offsets.empty() ? "" : " at " + std::to_string(arena.offsets[i])));
    }
  }

  void print_step(const Step& step) {
    std::string text = "step " + quote(step.op);
    if (step.kernel >= 0) text += " kernel " + std::to_string(step.kernel);
    text += " " + list(step.args, [](const Arg& arg) { return str(arg); }) + " -> [";
    for (size_t i = 0; i < step.results.size(); ++i)
      text += (i ? ", " : "") + name(step.results[i]) + ": " + step.types.at(i).str();
    text += "]";
    const auto add = [&](const char* word, const std::vector<Register>& registers) {
      if (!registers.empty()) text += std::string(" ") + word + " " + names(registers);
    };
    add("release", step.release);
    add("reuse", step.reuse);
    add("into", step.into);
    if (!step.arena.empty())
      text += " arena " + list(step.arena, [](int32_t buffer) { return std::to_string(buffer); });
    if (!step.in_place_op.empty())
      text += " in_place " + quote(step.in_place_op) + " " + std::to_string(step.taken);
    if (step.view_offset) text += " offset " + step.view_offset->str();
    if (step.with_next) text += " with_next";
    if (step.visible) text += " visible";
    if (step.grad) text += " grad";
    line(text);
  }

  const Program& program_;
  std::map<const std::string*, size_t> codes_;
  std::string text_;
};

}  // namespace

std::string to_text(const Program& program) { return Printer(program).run(); }

}  // namespace smelt
