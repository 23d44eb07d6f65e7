#include "runtime/program.h"

#include <array>

namespace smelt {
namespace {

// In the order of smelt::Source, which the runtime does not see.
constexpr std::array<const char*, 3> kSources = {"argument", "captured", "grad"};

std::string name(Register reg) { return reg < 0 ? "_" : "%" + std::to_string(reg); }

template <class Items, class Print>
std::string join(const Items& items, Print print) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : ", ") + print(item);
  return text;
}

std::string names(const std::vector<Register>& registers) {
  return join(registers, [](Register reg) { return name(reg); });
}

// "s0 = input 1, dim 0 (batch, was 8)"
std::string binding_line(const Program& program, size_t index) {
  const SymbolBinding& binding = program.bindings[index];
  const Symbol& symbol = program.symbols.symbols()[index];
  const std::string from = binding.is_given() ? "given"
                                              : "input " + std::to_string(binding.input) +
                                                    ", dim " + std::to_string(binding.dim);
  return "s" + std::to_string(index) + " = " + from + " (" +
         (symbol.name.empty() ? "" : symbol.name + ", ") + "was " + std::to_string(symbol.hint) +
         ")";
}

// "  %3 at 128": the place in the arena; of one that depends on symbols, which buffer it is.
std::string place_text(const Arena& arena, const Step& step, size_t result) {
  const int32_t buffer = step.arena[result];
  if (buffer < 0) return "";
  if (arena.offsets.empty())
    return "  " + name(step.results[result]) + " is arena buffer " + std::to_string(buffer);
  if (arena.offsets[buffer] < 0) return "";
  return "  " + name(step.results[result]) + " at " + std::to_string(arena.offsets[buffer]);
}

std::string arena_text(const Arena& arena) {
  if (arena.buffers.empty()) return "";
  if (arena.offsets.empty())
    return ", arena of " + std::to_string(arena.buffers.size()) + " buffers";
  return ", arena of " + std::to_string(arena.bytes) + " bytes";
}

// "%3, _ = aten::sort(%0, 1, false): f32[2], _  visible  release %0"
std::string step_line(const Step& step, const Arena& arena) {
  std::string line = step.results.empty() ? "" : names(step.results) + " = ";
  line += (step.kernel >= 0 ? "kernel " : "") + step.op + "(" +
          join(step.args, [](const Arg& arg) { return str(arg); }) + ")";
  for (size_t i = 0; i < step.results.size(); ++i) {
    line += (i == 0 ? ": " : ", ") + (step.results[i] < 0 ? "_" : step.types.at(i).str());
  }
  if (step.with_next) line += "  with next";
  if (step.visible) line += "  visible";
  if (step.grad) line += "  grad";
  for (size_t i = 0; i < step.reuse.size(); ++i)
    if (step.reuse[i] >= 0) line += "  " + name(step.results[i]) + " in " + name(step.reuse[i]);
  for (size_t i = 0; i < step.into.size(); ++i)
    if (step.into[i] >= 0) line += "  " + name(step.results[i]) + " into " + name(step.into[i]);
  for (size_t i = 0; i < step.arena.size(); ++i) line += place_text(arena, step, i);
  if (!step.release.empty()) line += "  release " + names(step.release);
  return line;
}

}  // namespace

std::string Program::str() const {
  std::string text =
      "program, " + std::to_string(registers) + " registers" + arena_text(arena) + "\n";
  const auto add = [&text](const std::string& line) { text += "  " + line + "\n"; };
  for (size_t i = 0; i < bindings.size(); ++i) add(binding_line(*this, i));
  for (const Guard& guard : symbols.guards()) add("guard " + guard.str());
  for (const ProgramInput& input : inputs) {
    add(name(input.reg) + " = " + kSources.at(input.source) + " " + std::to_string(input.index) +
        ": " + input.type.str());
  }
  for (const ProgramConstant& constant : constants) {
    add(name(constant.reg) + " = constant " + constant.digest);
  }
  for (const Step& step : steps) add(step_line(step, arena));
  add("return (" + join(outputs, [](Register reg) { return reg < 0 ? "none" : name(reg); }) + ")");
  if (preparation) text += "prepared by a " + preparation->str();
  return text;
}

}  // namespace smelt
