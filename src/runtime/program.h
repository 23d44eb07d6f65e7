// A Program: what runs. Plain data without pointers into the compiler; registers instead of values.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/arg.h"
#include "base/symbols.h"
#include "base/type.h"

namespace smelt {

using Register = int32_t;

struct Step {
  std::string op;                 // "aten::mm", "smelt::write"
  std::vector<Arg> args;          // Ref is a register
  std::vector<Register> results;  // -1: not kept
  std::vector<Register> release;  // registers whose tensor nobody reads after this step
  // The result is a view of a tensor that the caller sees: made so that autograd knows it as a
  // view.
  bool visible = false;
  bool grad = false;              // runs with the grad mode on: its kernel looks at it
  std::vector<TensorType> types;  // one per result, for checks; of an undefined one it says nothing
};

struct ProgramInput {
  Register reg = -1;
  uint8_t source = 0;  // as smelt::Source
  int32_t index = 0;
  TensorType type;
};

struct ProgramConstant {
  Register reg = -1;
  std::shared_ptr<const void> data;  // the capturing side's
  std::string digest;
};

// Where a symbol's value is read when the program starts: sizes[dim] of an input.
struct SymbolBinding {
  int32_t input = -1;
  int32_t dim = -1;
};

struct Program {
  int32_t registers = 0;
  std::vector<ProgramInput> inputs;
  std::vector<ProgramConstant> constants;
  std::vector<Step> steps;
  std::vector<Register> outputs;  // -1: None
  SymbolTable symbols;
  std::vector<SymbolBinding> bindings;  // one per symbol

  // One line per input, constant and step, for people.
  std::string str() const;
};

}  // namespace smelt
