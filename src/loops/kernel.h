// The loop program of one kernel. For each point of the outer dimensions (in any order, on any
// thread) the stages run one after the other; an inner stage runs its instructions for each point
// of the inner dimensions. Reductions of a stage are values of the outer point for the stages after
// it. So a softmax over rows is: outer = rows, inner = columns, stages max / sum of exp / store.
//
// Plain data: back ends read it, nothing in it points elsewhere. Instructions are in SSA form; one
// of an inner stage is seen in that stage only (a reduce: only after it), one of an outer stage in
// all that follows.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/size.h"
#include "loops/index.h"

namespace smelt::loops {

enum class Op : uint8_t {
#define SMELT_NODE(name, arguments, types, meaning) name,
#include "loops/nodes.def"
#undef SMELT_NODE
};
enum class Typing : uint8_t { same, floating, integral, compare, other };

struct OpFacts {
  std::string_view name;
  int arguments;
  Typing typing;
};
const OpFacts& facts_of(Op op);
std::optional<Op> parse_op(std::string_view name);

// The dtypes of buffers and values: f64, f32, f16, bf16, i64, i32, i16, i8, u8 and b8.
bool is_supported(DType dtype);
// f16 and bf16: loaded, cast and stored, never computed with.
inline bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
// May op compute with arguments of this dtype? Of the ops whose typing is not `other`: what
// nodes.def says, and b8 is not subtracted, divided, negated or shifted.
bool accepts(Op op, DType dtype);
// Does the instruction do something besides giving a value: write memory, or report failure?
struct Inst;
bool has_effect(const Inst& inst);

// How values are combined. min and max give NaN if there is one; argmin and argmax give the i64
// flat row-major position among the inner dimensions of the first extreme (the first NaN, if there
// is one); any and all take and give b8. Of nothing: 0, 1, the dtype's highest / lowest (an
// infinity of a floating one), position 0, false, true. b8 is added, multiplied and compared as by
// the ops.
enum class Reduction : uint8_t { sum, product, min, max, argmin, argmax, any, all };
std::string_view name_of(Reduction reduction);
std::optional<Reduction> parse_reduction(std::string_view name);
// May a scan or an accumulate combine so: value by value, in order?
inline bool is_running(Reduction reduction) { return reduction <= Reduction::max; }
// The op that combines two values so.
Op op_of(Reduction reduction);
inline bool gives_position(Reduction reduction) {
  return reduction == Reduction::argmin || reduction == Reduction::argmax;
}

using Val = int32_t;  // an instruction, and the value it computes

struct Inst {
  Op op = Op::constant;
  DType dtype = DType::f32;  // of the result; of a store and accumulate: of the buffer
  std::array<Val, 3> args = {-1, -1, -1};
  int32_t slot = -1;                     // buffer of load, store, accumulate; number of param
  Index index = {};                      // load, store, accumulate, index
  double number = 0;                     // constant of a floating dtype
  int64_t integer = 0;                   // constant of another
  Size bound = 0;                        // check
  Reduction reduction = Reduction::sum;  // reduce, scan, accumulate
};

struct Buffer {
  enum class Kind : uint8_t {
    input,
    output,   // written, also read where an earlier stage of the same outer point wrote
    updated,  // has contents before, and is written
    scratch,  // memory of one thread for one outer point: the kernel's own
  };
  DType dtype = DType::f32;
  Kind kind = Kind::input;
  Size elements = 0;  // one more than the highest index
};

struct Stage {
  bool inner = false;
  Val begin = 0, end = 0;  // its instructions
};

struct Kernel {
  std::string name;
  Sizes outer;  // dims 0 .. outer.size()-1
  Sizes inner;  // the dims after those
  std::vector<Buffer> buffers;
  int32_t params = 0;  // run-time scalars, each a double or an int64_t in eight bytes (by the dtype
                       // of the param)
  std::vector<Inst> insts;
  std::vector<Stage> stages;  // cover insts without gaps
  // Outer points must run in order on one thread (accumulate to overlapping places).
  bool ordered = false;

  int dims() const { return static_cast<int>(outer.size() + inner.size()); }
  const Size& extent(int dim) const {
    return dim < static_cast<int>(outer.size()) ? outer[dim] : inner[dim - outer.size()];
  }
  Sizes extents() const;

  // The text form; parse(str()) gives an equal kernel.
  std::string str() const;
  static Kernel parse(std::string_view text);  // Error with line and column on bad text
  // An InternalError says what is not well formed: SSA and stages, dtypes, slots, index ranges
  // where they are known.
  void verify() const;
  // Of everything but the name. Equal kernels are compiled once.
  uint64_t hash() const;
};

// The sizes of a kernel that are not known numbers, each once, in a fixed order: what is handed to
// its machine code at run time. (The elements of a buffer are among them only for scratch.)
Sizes size_params(const Kernel& kernel);

}  // namespace smelt::loops
