// A reshape leaves i // c and i % c behind. With i = c*j + k, 0 <= k < c, these are j and k: all
// indices are written over j and k instead. Where several divisors stand at one dimension, it is
// split again and again, each time into smaller extents, until none is left that divides its
// extent.
#include <algorithm>

#include "loops/simplify.h"

namespace smelt::loops {
namespace {

struct Cut {
  int32_t dim;
  Size size;  // of the new dimension behind
};

bool has_division(const Kernel& kernel) {
  return std::any_of(kernel.insts.begin(), kernel.insts.end(),
                     [](const Inst& inst) { return !inst.index.is_affine(); });
}

class CutFinder {
 public:
  explicit CutFinder(const Kernel& kernel) : extents_(kernel.extents()) {}

  std::optional<Cut> in(const Index& index) const {
    for (const Term& term : index.terms()) {
      if (!term.atom.inner) continue;
      if (std::optional<Cut> cut = in(*term.atom.inner)) return cut;
      if (std::optional<Cut> cut = under(*term.atom.inner, term.atom.divisor)) return cut;
    }
    return std::nullopt;
  }

 private:
  // The index is divided. It is s*i + rest; with i = (divisor/s)*j + k it is divisor*j + s*k +
  // rest, and j can be taken out. That is all of it if the rest is below s: then s*k + rest is
  // below the divisor. Otherwise the new dimension would not have made it affine.
  std::optional<Cut> under(const Index& divided, const Size& divisor) const {
    for (const Term& term : divided.terms()) {
      std::optional<Size> size = even_quotient(divisor, term.stride);
      if (!size) continue;
      const Atom* atom = &term.atom;
      // (i // e) // c is i // (c*e).
      if (atom->kind == Atom::Kind::quotient && atom->inner->terms().size() == 1 &&
          atom->inner->constant().is(0) && atom->inner->terms()[0].stride.is(1)) {
        size = *size * atom->divisor;
        atom = &atom->inner->terms()[0].atom;
      }
      if (atom->kind != Atom::Kind::dim || !can_cut(atom->id, *size)) continue;
      Index rest = divided - of_atom(term.atom) * term.stride;
      if (rest.lies_below(term.stride, {extents_})) return Cut{atom->id, *size};
    }
    return std::nullopt;
  }

  bool can_cut(int32_t dim, const Size& size) const {
    if (size.is(1) || (size.is_known() && size.known() < 1)) return false;
    if (extents_[dim].is(0)) return false;
    std::optional<Size> before = even_quotient(extents_[dim], size);
    return before && !before->is(1);
  }

  Sizes extents_;
};

std::optional<Cut> find_cut(const Kernel& kernel) {
  CutFinder finder(kernel);
  for (const Inst& inst : kernel.insts) {
    if (inst.index.is_affine()) continue;
    if (std::optional<Cut> cut = finder.in(inst.index)) return cut;
  }
  return std::nullopt;
}

void apply(Kernel& kernel, const Cut& cut) {
  Sizes outer = kernel.outer, inner = kernel.inner;
  bool is_outer = cut.dim < static_cast<int32_t>(outer.size());
  Sizes& sizes = is_outer ? outer : inner;
  size_t place = is_outer ? cut.dim : cut.dim - outer.size();
  sizes[place] = *even_quotient(sizes[place], cut.size);
  sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(place) + 1, cut.size);
  Indices dims;
  for (int32_t d = 0; d < kernel.dims(); ++d) {
    if (d == cut.dim)
      dims.push_back(Index::dim(d) * cut.size + Index::dim(d + 1));
    else
      dims.push_back(Index::dim(d < cut.dim ? d : d + 1));
  }
  replace_dims(kernel, std::move(outer), std::move(inner), dims);
}

}  // namespace

void split_dims(Kernel& kernel) {
  if (!has_division(kernel)) return;
  // Indices may have been written before all extents were known.
  Indices same;
  for (int32_t d = 0; d < kernel.dims(); ++d) same.push_back(Index::dim(d));
  replace_dims(kernel, kernel.outer, kernel.inner, same);
  while (std::optional<Cut> cut = find_cut(kernel)) apply(kernel, *cut);
}

}  // namespace smelt::loops
