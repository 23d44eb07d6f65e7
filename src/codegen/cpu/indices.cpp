// Index expressions: sums whose terms are each computed at the outermost loop that has them.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>

#include "codegen/cpu/emitter.h"
#include "codegen/cpu/types.h"

namespace smelt::cpu {

using loops::Atom;
using loops::Term;

uint64_t depends_of(const Index& index, const std::vector<uint64_t>& of_values) {
  uint64_t depends = 0;
  for (const Term& term : index.terms()) {
    switch (term.atom.kind) {
      case Atom::Kind::dim: depends |= bit_of(term.atom.id); break;
      case Atom::Kind::value: depends |= of_values[term.atom.id]; break;
      default: depends |= depends_of(*term.atom.inner, of_values); break;
    }
  }
  return depends;
}

uint64_t Emitter::depends_of(const Atom& atom) const {
  switch (atom.kind) {
    case Atom::Kind::dim: return bit_of(atom.id);
    case Atom::Kind::value: return plan_.depends[atom.id];
    default: return depends_of(*atom.inner);
  }
}

namespace {

bool is_never_negative(const Index& index, const loops::Kernel& kernel) {
  const Sizes extents = kernel.extents();
  const auto range = index.range({extents});
  return range && range->low >= 0;
}

// No number on the way to the index is greater in magnitude; nothing if that is not known.
std::optional<int64_t> magnitude(const Index& index, const loops::Kernel& kernel) {
  constexpr int64_t kEnough = int64_t{1} << 40;  // more is as good as not known
  auto known = [](const Size& size) -> std::optional<int64_t> {
    const auto number = size.as_known();
    return number && std::abs(*number) < kEnough ? std::optional(std::abs(*number)) : std::nullopt;
  };
  std::optional<int64_t> sum = known(index.constant());
  for (const Term& term : index.terms()) {
    std::optional<int64_t> atom;
    switch (term.atom.kind) {
      case Atom::Kind::dim: atom = known(kernel.extent(term.atom.id)); break;
      case Atom::Kind::value: break;
      default:
        atom = magnitude(*term.atom.inner, kernel);
        if (const auto divisor = known(term.atom.divisor); atom && divisor)
          atom = std::max(*atom, *divisor);
        else
          atom.reset();
    }
    const auto stride = known(term.stride);
    if (!sum || !atom || !stride || *atom >= kEnough) return std::nullopt;
    if (*stride != 0 && *atom > kEnough / *stride) return std::nullopt;
    *sum += *atom * *stride;
  }
  return sum;
}

}  // namespace

// 32 bits where they are known to do: twice the lanes in a register, and division by constants
// without leaving it.
llvm::Type* Emitter::lane_index_type(const Index& index) {
  const auto most = magnitude(index, kernel_);
  return most && *most <= std::numeric_limits<int32_t>::max() ? ir_.getInt32Ty() : ir_.getInt64Ty();
}

// Rounds down; the divisor, a size, is positive.
Value* Emitter::divide(const Atom& atom, Value* dividend, Value* divisor) {
  const bool quotient = atom.kind == Atom::Kind::quotient;
  if (is_never_negative(*atom.inner, kernel_))
    return quotient ? ir_.CreateUDiv(dividend, divisor) : ir_.CreateURem(dividend, divisor);
  Value* zero = integer_of(dividend->getType(), 0);
  Value* rest = ir_.CreateSRem(dividend, divisor);
  Value* below = ir_.CreateICmpSLT(rest, zero);
  if (!quotient) return ir_.CreateAdd(rest, ir_.CreateSelect(below, divisor, zero));
  return ir_.CreateAdd(ir_.CreateSDiv(dividend, divisor),
                       ir_.CreateSExt(below, dividend->getType()));
}

Value* Emitter::scalar_atom(const Atom& atom) {
  switch (atom.kind) {
    case Atom::Kind::dim: return dim_value_[atom.id];
    case Atom::Kind::value: return scalar_of(atom.id);
    default: break;
  }
  Value* result = nullptr;
  at_depth(depth_of(depends_of(atom)),
           [&] { result = divide(atom, scalar_index(*atom.inner), size_value(atom.divisor)); });
  return result;
}

Value* Emitter::scalar_index(const Index& index) {
  std::map<int, llvm::SmallVector<const Term*, 4>> by_depth;
  for (const Term& term : index.terms()) by_depth[depth_of(depends_of(term.atom))].push_back(&term);
  Value* sum = ir_.getInt64(0);
  for (const auto& [depth, terms] : by_depth) {
    at_depth(depth, [&] {
      for (const Term* term : terms)
        sum = ir_.CreateAdd(sum, ir_.CreateMul(scalar_atom(term->atom), size_value(term->stride)));
    });
  }
  return ir_.CreateAdd(sum, size_value(index.constant()));
}

// `type`: of an element of the result.
Value* Emitter::vector_atom(const Atom& atom, int pack, llvm::Type* type) {
  switch (atom.kind) {
    case Atom::Kind::dim: {
      Value* first = ir_.CreateIntCast(dim_value_[atom.id], type, true);
      return ir_.CreateAdd(splat(first, lanes_),
                           lane_numbers(type, static_cast<int64_t>(pack) * lanes_));
    }
    case Atom::Kind::value:
      return ir_.CreateIntCast(lanes_of(atom.id, pack), with_lanes(type, lanes_), true);
    default: break;
  }
  Value* dividend = vector_index(*atom.inner, pack, type, false);
  return divide(atom, dividend,
                splat(ir_.CreateIntCast(size_value(atom.divisor), type, true), lanes_));
}

Value* Emitter::vector_index(const Index& index, int pack, llvm::Type* type,
                             bool varying_terms_only) {
  Value* sum = nullptr;
  auto add = [&](Value* value) { sum = sum ? ir_.CreateAdd(sum, value) : value; };
  for (const Term& term : index.terms()) {
    if (!is_varying(depends_of(term.atom))) {
      if (varying_terms_only) continue;
      Value* scalar = nullptr;
      at_depth(depth_of(depends_of(term.atom)), [&] {
        scalar = ir_.CreateMul(scalar_atom(term.atom), size_value(term.stride));
        scalar = splat(ir_.CreateIntCast(scalar, type, true), lanes_);
      });
      add(scalar);
      continue;
    }
    Value* stride = splat(ir_.CreateIntCast(size_value(term.stride), type, true), lanes_);
    add(ir_.CreateMul(vector_atom(term.atom, pack, type), stride));
  }
  if (!varying_terms_only && !index.constant().is(0))
    add(splat(ir_.CreateIntCast(size_value(index.constant()), type, true), lanes_));
  return sum ? sum : splat(integer_of(type, 0), lanes_);
}

Parts Emitter::emit_index(Val value) {
  const Index& index = kernel_.insts[value].index;
  if (!is_varying(value)) return {scalar_index(index)};
  llvm::Type* type = lane_index_type(index);
  Parts parts;
  for (int pack = 0; pack < packs_; ++pack) {
    Value* number = vector_index(index, pack, type, false);
    parts.push_back(ir_.CreateSExt(number, with_lanes(ir_.getInt64Ty(), lanes_)));
  }
  return parts;
}

}  // namespace smelt::cpu
