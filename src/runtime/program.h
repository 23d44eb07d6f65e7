// A Program: what runs. Plain data without pointers into the compiler; registers instead of values.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/arg.h"
#include "base/symbols.h"
#include "base/type.h"
#include "runtime/kernel_image.h"

namespace smelt {

using Register = int32_t;

struct Step {
  std::string op;  // "aten::mm", "smelt::write"; of a kernel its name
  // >= 0: runs that kernel. args are the input buffers and what updated ones begin as, in order,
  // and the numbers that are its parameters; results are the buffers that are written.
  int32_t kernel = -1;
  std::vector<Arg> args;          // Ref is a register
  std::vector<Register> results;  // -1: not kept
  std::vector<Register> release;  // registers whose tensor nobody reads after this step
  // Per result: the released register whose memory it may take, if nobody else holds it; -1: none.
  // Empty for most calls.
  std::vector<Register> reuse;
  // Of a call that may: the op that does so. It takes args[taken] first, the others behind it.
  std::string in_place_op;
  int32_t taken = -1;
  // Of a kernel, per result: the register of the input that it is stored into; -1: new memory.
  std::vector<Register> into;
  // Of a kernel, per result, where the program has an arena: the buffer of it; -1: none.
  std::vector<int32_t> arena;
  // Of a kernel: launched together with the next one, on which it does not depend.
  bool with_next = false;
  // The result is a view of a tensor that the caller sees: made so that autograd knows it as a
  // view.
  bool visible = false;
  // Of any other view of the same dtype: where it begins, in elements from the first element of what
  // it shows.
  std::optional<Size> view_offset;
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
  int32_t input = -1;  // -1: whoever runs the program gives its value
  int32_t dim = -1;

  bool is_given() const { return input < 0; }
};

// One block of memory that a run takes when it starts, for results of kernels that nobody outside
// of the program gets to see.
struct Arena {
  struct Buffer {
    Size bytes = 0;
    // Steps: nobody uses it before the one and after the other.
    int32_t first = 0, last = 0;
  };
  std::vector<Buffer> buffers;
  // By buffer, where it lies; -1: memory of its own. None if sizes depend on symbols: then it is
  // planned for the sizes of a run.
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
};

struct Program {
  int32_t registers = 0;
  std::vector<ProgramInput> inputs;
  std::vector<ProgramConstant> constants;
  std::vector<KernelImage> kernels;
  std::vector<Step> steps;
  std::vector<Register> outputs;  // -1: None
  // An op among the calls that gives something else under another default dtype than the graph's;
  // empty: none does.
  std::string asks_default_float;
  SymbolTable symbols;
  std::vector<SymbolBinding> bindings;  // one per symbol
  Arena arena;
  // What is computed once from inputs that stay as they are. Its inputs count this program's
  // inputs; its outputs are this program's last inputs.
  std::shared_ptr<const Program> preparation;

  // One line per input, constant and step, for people.
  std::string str() const;
};

}  // namespace smelt
