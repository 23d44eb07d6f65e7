#include "loops/kernel.h"

#include <algorithm>

#include "base/error.h"

namespace smelt::loops {
namespace {

constexpr OpFacts kOps[] = {
#define SMELT_NODE(name, arguments, types, meaning) {#name, arguments, Typing::types},
#include "loops/nodes.def"
#undef SMELT_NODE
};

constexpr std::string_view kReductions[] = {"sum",    "product", "min", "max",
                                            "argmin", "argmax",  "any", "all"};

class SizeParams {
 public:
  void add(const Size& size) {
    if (size.is_known()) return;
    if (std::find(sizes_.begin(), sizes_.end(), size) == sizes_.end()) sizes_.push_back(size);
  }
  void add(const Index& index) {
    add(index.constant());
    for (const Term& term : index.terms()) {
      add(term.stride);
      if (!term.atom.inner) continue;
      add(term.atom.divisor);
      add(*term.atom.inner);
    }
  }
  Sizes take() { return std::move(sizes_); }

 private:
  Sizes sizes_;
};

}  // namespace

const OpFacts& facts_of(Op op) { return kOps[static_cast<size_t>(op)]; }

std::optional<Op> parse_op(std::string_view name) {
  for (size_t i = 0; i < std::size(kOps); ++i) {
    if (kOps[i].name == name) return static_cast<Op>(i);
  }
  return std::nullopt;
}

std::string_view name_of(Reduction reduction) {
  return kReductions[static_cast<size_t>(reduction)];
}

std::optional<Reduction> parse_reduction(std::string_view name) {
  for (size_t i = 0; i < std::size(kReductions); ++i) {
    if (kReductions[i] == name) return static_cast<Reduction>(i);
  }
  return std::nullopt;
}

bool is_supported(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::i64:
    case DType::i32:
    case DType::i16:
    case DType::i8:
    case DType::u8:
    case DType::b8: return true;
    default: return false;
  }
}

bool accepts(Op op, DType dtype) {
  if (!is_supported(dtype) || is_half(dtype)) return false;
  if (dtype == DType::b8) {
    switch (op) {
      case Op::sub:
      case Op::div:
      case Op::mod:
      case Op::neg:
      case Op::shift_left:
      case Op::shift_right: return false;
      default: break;
    }
  }
  switch (facts_of(op).typing) {
    case Typing::same:
    case Typing::compare: return true;
    case Typing::floating: return is_floating(dtype);
    case Typing::integral: return !is_floating(dtype);
    case Typing::other: return false;
  }
  return false;
}

Op op_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::product: return Op::mul;
    case Reduction::min: return Op::min;
    case Reduction::max: return Op::max;
    default: return Op::add;
  }
}

bool has_effect(const Inst& inst) {
  switch (inst.op) {
    case Op::store:
    case Op::accumulate:
    case Op::check: return true;
    case Op::div:
    case Op::mod: return !is_floating(inst.dtype);
    default: return false;
  }
}

Sizes Kernel::extents() const {
  Sizes sizes;
  sizes.reserve(outer.size() + inner.size());
  sizes.insert(sizes.end(), outer.begin(), outer.end());
  sizes.insert(sizes.end(), inner.begin(), inner.end());
  return sizes;
}

Sizes size_params(const Kernel& kernel) {
  SizeParams params;
  for (const Size& size : kernel.outer) params.add(size);
  for (const Size& size : kernel.inner) params.add(size);
  for (const Buffer& buffer : kernel.buffers) {
    if (buffer.kind == Buffer::Kind::scratch) params.add(buffer.elements);
  }
  for (const Inst& inst : kernel.insts) {
    params.add(inst.index);
    params.add(inst.bound);
  }
  return params.take();
}

}  // namespace smelt::loops
