#include "base/size_code.h"

#include <utility>

#include "base/error.h"

namespace smelt {

int32_t SizeCode::constant(int64_t value) {
  const auto [found, is_new] = constants_.try_emplace(value, static_cast<int32_t>(start_.size()));
  if (is_new) start_.push_back(value);
  return found->second;
}

int32_t SizeCode::symbol(int32_t index) {
  const auto [found, is_new] = symbols_.try_emplace(index, static_cast<int32_t>(start_.size()));
  if (is_new) start_.push_back(0);
  return found->second;
}

int32_t SizeCode::apply(Op op, int32_t left, int32_t right) {
  const auto [found, is_new] =
      known_.try_emplace({op, left, right}, static_cast<int32_t>(start_.size()));
  if (is_new) {
    start_.push_back(0);
    steps_.push_back({op, left, right, found->second});
  }
  return found->second;
}

int32_t SizeCode::place_of(const Atom& atom) {
  const auto both = [&](Op op) {
    const int32_t left = place_of(atom.left), right = place_of(atom.right);
    return apply(op, left, right);
  };
  switch (atom.kind) {
    case Atom::Kind::symbol: return symbol(atom.symbol);
    case Atom::Kind::floor_div: return both(Op::floor_div);
    case Atom::Kind::modulo: return both(Op::modulo);
    case Atom::Kind::min: return both(Op::min);
    case Atom::Kind::max: return both(Op::max);
  }
  SMELT_CHECK(false, "no such atom");
}

int32_t SizeCode::place_of(const Size& size) {
  if (size.is_known()) return constant(size.known());
  int32_t sum = -1;
  for (const Term& term : size.form()->terms) {
    int32_t product = -1;
    for (const Atom& atom : term.atoms) {
      const int32_t factor = place_of(atom);
      product = product < 0 ? factor : apply(Op::multiply, product, factor);
    }
    if (product < 0)
      product = constant(term.coefficient);
    else if (term.coefficient != 1)
      product = apply(Op::multiply, product, constant(term.coefficient));
    sum = sum < 0 ? product : apply(Op::add, sum, product);
  }
  return sum;
}

void SizeCode::run(std::span<const int64_t> symbols, std::vector<int64_t>& values) const {
  values = start_;
  for (const auto& [index, place] : symbols_) {
    SMELT_CHECK(static_cast<size_t>(index) < symbols.size(), "no value for a symbol");
    values[place] = symbols[index];
  }
  for (const Step& step : steps_) {
    const int64_t left = values[step.left], right = values[step.right];
    const auto a = static_cast<uint64_t>(left), b = static_cast<uint64_t>(right);
    int64_t& result = values[step.result];
    switch (step.op) {
      case Op::add: result = static_cast<int64_t>(a + b); break;
      case Op::multiply: result = static_cast<int64_t>(a * b); break;
      case Op::floor_div: result = Atom::apply(Atom::Kind::floor_div, left, right); break;
      case Op::modulo: result = Atom::apply(Atom::Kind::modulo, left, right); break;
      case Op::min: result = left < right ? left : right; break;
      case Op::max: result = left > right ? left : right; break;
    }
  }
}

}  // namespace smelt
