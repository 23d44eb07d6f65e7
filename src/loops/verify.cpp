#include <algorithm>

#include "base/bounds.h"
#include "base/error.h"
#include "loops/kernel.h"

namespace smelt::loops {
namespace {

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel)
      : kernel_(kernel),
        extents_(kernel.extents()),
        seen_(kernel.insts.size(), false),
        written_(kernel.buffers.size(), false) {}

  void run() {
    for (const Size& extent : extents_)
      check(!extent.is_known() || extent.known() >= 0, "an extent is negative");
    for (const Buffer& buffer : kernel_.buffers) {
      check(is_supported(buffer.dtype), "a buffer has a dtype that kernels don't have");
      check(!buffer.elements.is_known() || buffer.elements.known() >= 0,
            "a buffer has a negative number of elements");
    }
    Val next = 0;
    for (const Stage& stage : kernel_.stages) {
      check(stage.begin == next && stage.end >= stage.begin,
            "the stages don't follow one another without gaps");
      check(static_cast<size_t>(stage.end) <= kernel_.insts.size(),
            "a stage ends after the last instruction");
      next = stage.end;
      verify_stage(stage);
    }
    check(static_cast<size_t>(next) == kernel_.insts.size(), "instructions stand in no stage");
  }

 private:
  void check(bool condition, const char* message) const {
    if (!condition) fail(message);
  }

  [[noreturn]] void fail(const std::string& message) const {
    std::string where = at_ < 0 ? ""
                                : " at v" + std::to_string(at_) + " (" +
                                      std::string(facts_of(kernel_.insts[at_].op).name) + ")";
    throw InternalError("the kernel \"" + kernel_.name + "\" is broken" + where + ": " + message);
  }

  void verify_stage(const Stage& stage) {
    inner_ = stage.inner;
    for (at_ = stage.begin; at_ < stage.end; ++at_) {
      const Inst& inst = kernel_.insts[at_];
      verify_inst(inst);
      seen_[at_] = inst.op != Op::store && inst.op != Op::accumulate && inst.op != Op::reduce;
    }
    at_ = -1;
    for (Val v = stage.begin; inner_ && v < stage.end; ++v)
      seen_[v] = kernel_.insts[v].op == Op::reduce;
  }

  DType dtype_of(Val value) const { return kernel_.insts[value].dtype; }

  void check_value(Val value) const {
    if (value < 0 || static_cast<size_t>(value) >= seen_.size() || !seen_[value])
      fail("v" + std::to_string(value) + " is not a value that is seen here");
  }

  void verify_inst(const Inst& inst) {
    check(is_supported(inst.dtype), "kernels have no values of its dtype");
    int arguments = facts_of(inst.op).arguments;
    for (int i = 0; i < 3; ++i) {
      if (i < arguments)
        check_value(inst.args[i]);
      else
        check(inst.args[i] == -1, "it has too many arguments");
    }
    if (facts_of(inst.op).typing == Typing::other)
      verify_other(inst);
    else
      verify_computation(inst);
  }

  void verify_computation(const Inst& inst) const {
    DType type = dtype_of(inst.args[0]);
    check(accepts(inst.op, type), "it does not compute with the dtype of its arguments");
    if (inst.args[1] >= 0)
      check(dtype_of(inst.args[1]) == type, "its arguments are of different dtypes");
    bool compares = facts_of(inst.op).typing == Typing::compare;
    check(inst.dtype == (compares ? DType::b8 : type), "its dtype is not what comes out");
  }

  void verify_other(const Inst& inst) {
    DType argument = inst.args[0] >= 0 ? dtype_of(inst.args[0]) : inst.dtype;
    switch (inst.op) {
      case Op::constant: check(!is_half(inst.dtype), "a constant is not of half precision"); break;
      case Op::param:
        check(!is_half(inst.dtype), "a parameter is not of half precision");
        check(inst.slot >= 0 && inst.slot < kernel_.params, "there is no such parameter");
        break;
      case Op::index:
        check(inst.dtype == DType::i64, "an index is an i64");
        verify_index(inst.index);
        break;
      case Op::load:
        verify_access(inst);
        check_readable(inst.slot);
        break;
      case Op::store:
      case Op::accumulate:
        verify_access(inst);
        verify_write(inst);
        break;
      case Op::check:
        check(inst.dtype == DType::i64 && argument == DType::i64, "an i64 is checked");
        break;
      case Op::reduce: verify_reduce(inst, argument); break;
      case Op::scan:
        check(inner_, "only an inner stage scans");
        check(is_running(inst.reduction), "no scan combines so");
        check(inst.dtype == argument && !is_half(argument), "it has a dtype that is not combined");
        break;
      case Op::select:
        check(argument == DType::b8, "a select asks a b8");
        check(!is_half(inst.dtype), "nothing of half precision is selected");
        check(dtype_of(inst.args[1]) == inst.dtype && dtype_of(inst.args[2]) == inst.dtype,
              "its arguments are of different dtypes");
        break;
      case Op::random_bits:
      case Op::random_normal:
        for (const Val value : inst.args)
          check(dtype_of(value) == DType::i64, "random numbers are counted in i64");
        check(inst.dtype == (inst.op == Op::random_bits ? DType::i64 : DType::f32),
              "its dtype is not what comes out");
        break;
      default: break;
    }
  }

  void verify_reduce(const Inst& inst, DType argument) const {
    check(inner_, "only an inner stage reduces");
    bool logical = inst.reduction == Reduction::any || inst.reduction == Reduction::all;
    check(logical ? argument == DType::b8 : !is_half(argument),
          "its argument has a dtype that is not combined so");
    check(inst.dtype == (gives_position(inst.reduction) ? DType::i64 : argument),
          "its dtype is not what comes out");
  }

  void check_readable(int32_t slot) const {
    Buffer::Kind kind = kernel_.buffers[slot].kind;
    check(kind == Buffer::Kind::input || kind == Buffer::Kind::updated || written_[slot],
          "it reads a buffer that nothing before it wrote");
  }

  void verify_write(const Inst& inst) {
    check(kernel_.buffers[inst.slot].kind != Buffer::Kind::input, "it writes to an input");
    if (inst.op == Op::accumulate) {
      check(is_running(inst.reduction), "memory is not combined with so");
      check_readable(inst.slot);
    }
    check(dtype_of(inst.args[0]) == inst.dtype, "its argument is not of the buffer's dtype");
    written_[inst.slot] = true;
  }

  void verify_access(const Inst& inst) const {
    check(inst.slot >= 0 && static_cast<size_t>(inst.slot) < kernel_.buffers.size(),
          "there is no such buffer");
    const Buffer& buffer = kernel_.buffers[inst.slot];
    check(inst.dtype == buffer.dtype, "its dtype is not that of the buffer");
    verify_index(inst.index);
    // Of an affine index the range is exact; quotients and remainders may depend on each other.
    if (nobody_comes() || !inst.index.is_affine() || inst.index.uses_values()) return;
    std::optional<Index::SizeRange> range = inst.index.size_range({extents_});
    if (!range) return;
    if (bounds(range->low).high < 0 || difference_bounds(range->high, buffer.elements).low >= 0) {
      fail("its index " + inst.index.str() + " leaves the buffer, which has " +
           buffer.elements.str() + " elements");
    }
  }

  // The stage runs over no point, or maybe over none.
  bool nobody_comes() const {
    size_t dims = inner_ ? extents_.size() : kernel_.outer.size();
    return std::any_of(extents_.begin(), extents_.begin() + dims,
                       [](const Size& extent) { return bounds(extent).low < 1; });
  }

  void verify_index(const Index& index) const {
    size_t dims = inner_ ? extents_.size() : kernel_.outer.size();
    for (const Term& term : index.terms()) {
      if (term.atom.inner) {
        check(!term.atom.divisor.is_known() || term.atom.divisor.known() > 0,
              "an index is divided by a number that is not positive");
        verify_index(*term.atom.inner);
      } else if (term.atom.kind == Atom::Kind::value) {
        check_value(term.atom.id);
        check(dtype_of(term.atom.id) == DType::i64, "an index is made of i64 values");
      } else {
        check(term.atom.id >= 0 && static_cast<size_t>(term.atom.id) < dims,
              "an index uses a dimension that the stage does not run over");
      }
    }
  }

  const Kernel& kernel_;
  Sizes extents_;
  std::vector<bool> seen_;     // values the current instruction may use
  std::vector<bool> written_;  // buffers
  bool inner_ = false;
  Val at_ = -1;
};

}  // namespace

void Kernel::verify() const { Verifier(*this).run(); }

}  // namespace smelt::loops
