#include "loops/hash.h"

#include <bit>
#include <cmath>

#include "base/polynomial.h"

namespace smelt::loops {

uint64_t bits_of(double number) {
  return std::isnan(number) ? ~uint64_t{0} : std::bit_cast<uint64_t>(number);
}

void Hash::add(const Size& size) {
  if (size.is_known()) return add(static_cast<uint64_t>(size.known()));
  add(size.form()->terms.size());
  for (const smelt::Term& term : size.form()->terms) {
    add(static_cast<uint64_t>(term.coefficient));
    add(term.atoms.size());
    for (const smelt::Atom& atom : term.atoms) {
      add(static_cast<uint64_t>(atom.kind));
      if (atom.kind == smelt::Atom::Kind::symbol) {
        add(static_cast<uint64_t>(atom.symbol));
      } else {
        add(atom.left);
        add(atom.right);
      }
    }
  }
}

void Hash::add(const Index& index) {
  add(index.constant());
  add(index.terms().size());
  for (const Term& term : index.terms()) {
    add(static_cast<uint64_t>(term.atom.kind));
    if (term.atom.inner) {
      add(*term.atom.inner);
      add(term.atom.divisor);
    } else {
      add(static_cast<uint64_t>(term.atom.id));
    }
    add(term.stride);
  }
}

void Hash::add(const Inst& inst) {
  add(static_cast<uint64_t>(inst.op) | static_cast<uint64_t>(inst.dtype) << 8 |
      static_cast<uint64_t>(inst.reduction) << 16);
  for (Val arg : inst.args) add(static_cast<uint64_t>(arg));
  add(static_cast<uint64_t>(inst.slot));
  add(inst.index);
  add(bits_of(inst.number));
  add(static_cast<uint64_t>(inst.integer));
  add(inst.bound);
}

bool same(const Inst& a, const Inst& b) {
  return a.op == b.op && a.dtype == b.dtype && a.args == b.args && a.slot == b.slot &&
         a.reduction == b.reduction && a.integer == b.integer &&
         bits_of(a.number) == bits_of(b.number) && a.bound == b.bound && a.index == b.index;
}

uint64_t Kernel::hash() const {
  Hash hash;
  for (const Sizes* sizes : {&outer, &inner}) {
    hash.add(sizes->size());
    for (const Size& size : *sizes) hash.add(size);
  }
  hash.add(buffers.size());
  for (const Buffer& buffer : buffers) {
    hash.add(static_cast<uint64_t>(buffer.dtype) | static_cast<uint64_t>(buffer.kind) << 8);
    hash.add(buffer.elements);
  }
  hash.add(static_cast<uint64_t>(params));
  hash.add(static_cast<uint64_t>(ordered));
  hash.add(insts.size());
  for (const Inst& inst : insts) hash.add(inst);
  hash.add(stages.size());
  for (const Stage& stage : stages) {
    hash.add(static_cast<uint64_t>(stage.inner));
    hash.add(static_cast<uint64_t>(stage.end));
  }
  return hash.value();
}

}  // namespace smelt::loops
