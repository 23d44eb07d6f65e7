#include "codegen/cpu/short_rows.h"

#include <algorithm>

namespace smelt::cpu {

using loops::Atom;
using loops::Index;
using loops::Inst;
using loops::Kernel;
using loops::Op;
using loops::Term;

namespace {

bool depends(const Term& term, int dim) {
  if (term.atom.kind == Atom::Kind::dim) return term.atom.id == dim;
  // What a value depends on is not known here.
  return term.atom.kind == Atom::Kind::value || term.atom.inner->uses_dim(dim) ||
         term.atom.inner->uses_values();
}

bool fills(int64_t row, int lanes) { return row >= 2 && row < lanes && lanes % row == 0; }

bool has_order(const Kernel& kernel) {
  if (kernel.ordered) return true;
  return std::ranges::any_of(kernel.insts, [](const Inst& inst) {
    return inst.op == Op::scan || inst.op == Op::accumulate ||
           (inst.op == Op::store && inst.index.uses_values());
  });
}

}  // namespace

std::optional<RowWalk> row_walk(const Index& index, int dim, int lanes) {
  RowWalk walk;
  for (const Term& term : index.terms()) {
    if (!depends(term, dim)) continue;
    const Atom& atom = term.atom;
    if (!atom.inner || *atom.inner != Index::dim(dim) || !atom.divisor.is_known())
      return std::nullopt;
    const int64_t row = atom.divisor.known();
    if (!fills(row, lanes) || (walk.row != 0 && walk.row != row)) return std::nullopt;
    walk.row = row;
    if (atom.kind == Atom::Kind::quotient)
      walk.stride = term.stride;
    else if (term.stride.is(1))
      walk.along = true;
    else
      return std::nullopt;
  }
  return walk.row == 0 ? std::nullopt : std::optional(walk);
}

bool goes_by_rows(const Kernel& kernel, int dim, int lanes) {
  return std::ranges::any_of(kernel.insts, [&](const Inst& inst) {
    return (inst.op == Op::load || inst.op == Op::store) &&
           row_walk(inst.index, dim, lanes).has_value();
  });
}

std::optional<Kernel> join_short_rows(const Kernel& kernel, int lanes) {
  const bool inner = !kernel.inner.empty();
  const Sizes& sizes = inner ? kernel.inner : kernel.outer;
  if (sizes.size() < 2 || !sizes.back().is_known() || has_order(kernel)) return std::nullopt;
  const int64_t row = sizes.back().known();
  if (!fills(row, lanes) || sizes[sizes.size() - 2].is(1)) return std::nullopt;

  Kernel joined = kernel;
  Sizes& changed = inner ? joined.inner : joined.outer;
  changed.pop_back();
  changed.back() = changed.back() * row;
  // The machine code is given the sizes of the kernel as it was.
  const int flat = joined.dims() - 1;
  const Sizes extents = joined.extents();
  std::vector<Index> dims;
  for (int dim = 0; dim < flat; ++dim) dims.push_back(Index::dim(dim));
  dims.push_back(quotient(Index::dim(flat), row, {extents}));
  dims.push_back(remainder(Index::dim(flat), row, {extents}));
  for (Inst& inst : joined.insts) inst.index = inst.index.substitute(dims, {extents});
  if (size_params(joined) != size_params(kernel)) return std::nullopt;
  return joined;
}

}  // namespace smelt::cpu
