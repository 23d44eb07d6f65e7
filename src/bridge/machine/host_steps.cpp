#include "bridge/machine/host_steps.h"

#include <algorithm>

#include "graph/numbers.h"

namespace smelt {
namespace {

enum class Where : uint8_t { device, host, constant };

class HostSearch {
 public:
  explicit HostSearch(const LinkedProgram& program)
      : program_(program),
        where_(program.program().registers, Where::device),
        is_number_(program.program().registers),
        maker_(program.program().registers, -1) {
    found_.made.resize(program.steps().size());
    found_.used.resize(program.steps().size());
    for (const ProgramInput& input : program.program().inputs)
      if (input.reg >= 0 && numbers::is_number(input.type)) is_number_[input.reg] = true;
    for (const ProgramInput& input : program.program().inputs)
      if (input.reg >= 0 && (numbers::is_number(input.type) || !input.type.device.is_cuda()))
        where_[input.reg] = Where::host;
    for (const ProgramConstant& constant : program.program().constants)
      if (!static_cast<const at::Tensor*>(constant.data.get())->is_cuda())
        where_[constant.reg] = Where::constant;
  }

  HostSteps find() {
    for (size_t i = 0; i < program_.steps().size(); ++i) {
      if (Decision placed = place(i); !placed) {
        found_.possible = placed;
        return found_;
      }
    }
    for (const Register output : program_.program().outputs)
      if (output >= 0 && where_[output] != Where::device) {
        found_.possible = Decision::forbid("a result is not on CUDA");
        return found_;
      }
    found_.any =
        std::ranges::find(found_.is_host, true) != found_.is_host.end() || !found_.numbers.empty();
    return found_;
  }

 private:
  // What a step reads: tensors, and numbers that an op takes as such.
  struct Operands {
    std::vector<Register> tensors, numbers;
  };
  Operands operands_of(const LinkedStep& step) const {
    Operands all;
    for (const LinkedStep::Slot& slot : step.slots)
      for (const Register reg : slot.registers)
        if (reg >= 0) all.tensors.push_back(reg);
    for (const LinkedStep::NumberUse& use : step.numbers)
      all.numbers.push_back(static_cast<Register>(use.index));
    const bool is_kernel = step.kind == LinkedStep::Kind::kernel;
    for (const Register reg : step.targets)
      (is_kernel && is_number_[reg] ? all.numbers : all.tensors).push_back(reg);
    for (const LinkedStep::Operand& operand : step.operands)
      if (operand.reg >= 0) all.tensors.push_back(operand.reg);
    return all;
  }

  // The number that is in the register now is one that the step takes.
  void take(size_t step, Register reg) {
    const int32_t maker = maker_[reg];
    std::vector<uint32_t>& known = maker < 0 ? found_.given : found_.made[maker];
    auto number =
        std::ranges::find_if(known, [&](uint32_t other) { return found_.numbers[other] == reg; });
    if (number == known.end()) {
      number = known.insert(known.end(), static_cast<uint32_t>(found_.numbers.size()));
      found_.numbers.push_back(reg);
    }
    found_.used[step].push_back(*number);
  }

  Decision place(size_t index) {
    const LinkedStep& step = program_.steps()[index];
    const Step& plain = program_.program().steps[index];
    const Operands operands = operands_of(step);
    const auto is_at = [&](Where where) {
      return [&, where](Register reg) { return where_[reg] == where; };
    };
    const bool reads_device = std::ranges::any_of(operands.tensors, is_at(Where::device));
    bool gives_device = false, gives_host = false;
    for (size_t k = 0; k < plain.results.size() && k < plain.types.size(); ++k) {
      if (plain.results[k] < 0) continue;
      (plain.types[k].device.is_cuda() ? gives_device : gives_host) = true;
    }
    const bool is_host = step.kind == LinkedStep::Kind::draw ||
                         (!reads_device && !gives_device && !operands.tensors.empty());
    if (step.kind == LinkedStep::Kind::item && !is_host)
      return Decision::forbid("a number is read from the device");
    if (!is_host) {
      if (gives_host) return Decision::forbid(plain.op + " gives a tensor that is not on CUDA");
      if (std::ranges::any_of(operands.tensors, is_at(Where::host)))
        return Decision::forbid(plain.op + " reads a tensor that is not on CUDA");
      if (!operands.numbers.empty() && plain.op.find("pow") != std::string::npos)
        return Decision::forbid(plain.op + " has other kernels for other numbers");
      for (const Register number : operands.numbers) take(index, number);
    }
    for (size_t k = 0; k < plain.results.size(); ++k) {
      if (plain.results[k] < 0) continue;
      where_[plain.results[k]] = is_host ? Where::host : Where::device;
      maker_[plain.results[k]] = static_cast<int32_t>(index);
      is_number_[plain.results[k]] = k < plain.types.size() && numbers::is_number(plain.types[k]);
    }
    found_.is_host.push_back(is_host);
    return Decision::allow();
  }

  const LinkedProgram& program_;
  std::vector<Where> where_;
  std::vector<bool> is_number_;
  std::vector<int32_t> maker_;  // by register: the step that made what is in it; -1: none
  HostSteps found_;
};

}  // namespace

HostSteps find_host_steps(const LinkedProgram& program) { return HostSearch(program).find(); }

}  // namespace smelt
