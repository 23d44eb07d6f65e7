#include <algorithm>

#include "base/bounds.h"
#include "base/error.h"
#include "codegen/cuda/emitter.h"

namespace smelt::cuda {

std::string Emitter::size_text(const Size& size) const {
  if (size.is_known()) {
    const int64_t known = size.known();
    const std::string text = std::to_string(known);
    return known > INT32_MAX || known < -INT32_MAX ? text + "ll" : text;
  }
  const auto place = std::ranges::find(sizes_, size);
  if (place != sizes_.end()) return "n" + std::to_string(place - sizes_.begin());
  SMELT_CHECK(false, size.str() + " is no size of the kernel");
}

std::string Emitter::product_text(std::span<const Size> sizes) const {
  Size known = 1;
  std::string text;
  for (const Size& size : sizes) {
    if (size.is_known())
      known = known * size;
    else
      text += (text.empty() ? "" : " * ") + size_text(size);
  }
  if (text.empty()) return size_text(known);
  return known.is(1) ? text : text + " * " + size_text(known);
}

std::string Emitter::dim_text(int dim, bool lane, bool wide) const {
  const std::string name =
      (wide ? "static_cast<i64>(i" : "i") + std::to_string(dim) + (wide ? ")" : "");
  return lane && dim == plan_.vector_dim ? "(" + name + " + lane)" : name;
}

bool Emitter::is_never_negative(const Index& index) const {
  if (index.uses_values()) return false;
  const auto range = index.size_range({extents_});
  return range && bounds(range->low).low >= 0;
}

std::string Emitter::atom_text(const loops::Atom& atom, bool lane, bool wide) const {
  using Kind = loops::Atom::Kind;
  if (atom.kind == Kind::dim) return dim_text(atom.id, lane, wide);
  if (atom.kind == Kind::value) return ref(atom.id);
  const std::string inner = index_text(*atom.inner, lane, wide), divisor = size_text(atom.divisor);
  const bool quotient = atom.kind == Kind::quotient;
  const std::string type = wide ? "u64" : "UIndex";
  if (is_never_negative(*atom.inner))
    return std::string("static_cast<") + (wide ? "i64" : "Index") + ">(static_cast<" + type + ">(" +
           inner + ")" + (quotient ? " / " : " % ") + "static_cast<" + type + ">(" + divisor + "))";
  const std::string signed_type = wide ? "i64" : "Index";
  return std::string(quotient ? "floor_div<" : "floor_mod<") + signed_type + ">(" + inner + ", " +
         divisor + ")";
}

std::string Emitter::index_text(const Index& index, bool lane, bool wide) const {
  std::string text;
  for (const loops::Term& term : index.terms()) {
    if (!text.empty()) text += " + ";
    const std::string atom = atom_text(term.atom, lane, wide);
    text += term.stride.is(1) ? atom : size_text(term.stride) + " * " + atom;
  }
  if (text.empty()) return size_text(index.constant());
  if (!index.constant().is(0)) text += " + " + size_text(index.constant());
  return text;
}

std::string Emitter::element_text(const Inst& inst, bool lane) const {
  const Buffer& buffer = kernel_.buffers[inst.slot];
  const std::string name = "b" + std::to_string(inst.slot);
  // A value is anything in 64 bits; only the sum is known to be an index.
  const std::string index = index_text(inst.index, lane, inst.index.uses_values());
  const bool between = buffer.kind == Buffer::Kind::scratch &&
                       plan_.homes[inst.slot] == Home::global && (plan_.columns || plan_.serial);
  // Places of one element are next to each other, as their threads are.
  return between ? name + "[(" + index + ") * scratch_stride]" : name + "[" + index + "]";
}

// Row-major among the inner dimensions.
std::string Emitter::position_text() const { return lanes_are_points() ? "point + lane" : "point"; }

}  // namespace smelt::cuda
