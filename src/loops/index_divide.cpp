// Quotients and remainders, simplified as they are made. Both begin alike: what the divisor d
// divides is taken out,
//   a == d*whole + rest,   a // d == whole + rest // d,   a % d == rest % d,
// and then the rest is looked at:
//   - it lies in one interval [k*d, (k+1)*d): done, no division is left;
//   - it is g*x + y with 0 <= y < g, and g divides d: rest // d == x // (d/g), and
//     rest % d == g * (x % (d/g)) + y;
//   - it is a quotient or a remainder itself: (x // e) // d == x // (d*e), and where d divides e
//     (x % e) // d == (x // d) % (e/d); in a sum taken % d a term s*(x % e) may be written s*x
//     where d divides s*e.
// Each rule makes a smaller problem, so the recursion ends. Every rule holds for floor division of
// any integers x, y by positive d, e, g. A divisor is the size of a dimension: one that is not
// known to be positive may only be 0 where nobody visits the tensor.
#include <numeric>

#include "base/bounds.h"
#include "base/polynomial.h"
#include "loops/index.h"

namespace smelt::loops {
namespace {

struct Parts {
  Index whole, rest;  // the index is divisor*whole + rest
};

Parts split(const Index& a, const Size& divisor) {
  Parts parts;
  if (divisor.is_known() && a.constant().is_known()) {
    parts.whole = floor_div(a.constant(), divisor);
    parts.rest = modulo(a.constant(), divisor);
  } else {
    Division division = divide(a.constant(), divisor);
    parts.whole = division.quotient;
    parts.rest = division.rest;
  }
  for (const Term& term : a.terms()) {
    if (std::optional<Size> stride = even_quotient(term.stride, divisor))
      parts.whole = parts.whole + of_atom(term.atom) * *stride;
    else
      parts.rest = parts.rest + of_atom(term.atom) * term.stride;
  }
  return parts;
}

// k where all values of the index lie in [k*d, (k+1)*d).
std::optional<int64_t> only_quotient(const Index& index, const Size& divisor,
                                     const Extents& extents) {
  std::optional<Index::SizeRange> range = index.size_range(extents);
  if (!range) return std::nullopt;
  if (divisor.is_known() && range->low.is_known() && range->high.is_known()) {
    int64_t low = floor_div(range->low, divisor).known();
    if (low != floor_div(range->high, divisor).known()) return std::nullopt;
    return low;
  }
  if (bounds(range->low).low < 0 || difference_bounds(range->high, divisor).high >= 0)
    return std::nullopt;
  return 0;
}

// A factor g of the divisor with rest == g*x + y, 0 <= y < g.
struct Common {
  Size factor;
  Parts parts;
};

std::optional<Common> common_factor(const Index& rest, const Size& divisor,
                                    const Extents& extents) {
  auto tried = [&](const Size& factor) -> std::optional<Common> {
    Parts parts = split(rest, factor);
    if (parts.whole.is_constant() || !parts.rest.lies_below(factor, extents)) return std::nullopt;
    return Common{factor, std::move(parts)};
  };
  int64_t all = divisor.is_known() ? divisor.known() : 0;
  for (const Term& term : rest.terms()) {
    Size factor = term.stride;
    if (divisor.is_known() && factor.is_known()) {
      all = std::gcd(all, factor.known());
      factor = std::gcd(divisor.known(), factor.known());
    } else {
      all = 1;
      if (!even_quotient(divisor, factor) || bounds(factor).low < 1) continue;
    }
    if (factor.is(1) || factor == divisor) continue;
    if (std::optional<Common> common = tried(factor)) return common;
  }
  if (divisor.is_known() && all > 1 && all != divisor.known()) return tried(all);
  return std::nullopt;
}

// The atom, if the index is that and nothing else; a constant beside it is let through on demand.
const Atom* single_atom(const Index& index, bool with_constant = false) {
  if (index.terms().size() != 1 || !index.terms()[0].stride.is(1)) return nullptr;
  if (!with_constant && !index.constant().is(0)) return nullptr;
  return &index.terms()[0].atom;
}

Index quotient_of_rest(const Index& rest, const Size& divisor, const Extents& extents) {
  if (rest.is_constant()) return floor_div(rest.constant(), divisor);
  if (std::optional<int64_t> only = only_quotient(rest, divisor, extents)) return *only;
  const Atom* atom = single_atom(rest, true);
  if (atom && atom->kind == Atom::Kind::quotient) {
    return quotient(*atom->inner + rest.constant() * atom->divisor, divisor * atom->divisor,
                    extents);
  }
  atom = single_atom(rest);
  if (atom && atom->kind == Atom::Kind::remainder) {
    if (std::optional<Size> factor = even_quotient(atom->divisor, divisor))
      return remainder(quotient(*atom->inner, divisor, extents), *factor, extents);
  }
  if (std::optional<Common> common = common_factor(rest, divisor, extents))
    return quotient(common->parts.whole, *even_quotient(divisor, common->factor), extents);
  return of_atom({Atom::Kind::quotient, 0, std::make_shared<const Index>(rest), divisor});
}

// The index with s*x for terms s*(x % e) that are the same modulo d; nothing if there are none.
std::optional<Index> without_remainders(const Index& index, const Size& divisor) {
  Index result(index.constant());
  bool changed = false;
  for (const Term& term : index.terms()) {
    bool same = term.atom.kind == Atom::Kind::remainder &&
                even_quotient(term.stride * term.atom.divisor, divisor);
    changed |= same;
    result = result + (same ? *term.atom.inner : of_atom(term.atom)) * term.stride;
  }
  if (!changed) return std::nullopt;
  return result;
}

Index remainder_of_rest(const Index& rest, const Size& divisor, const Extents& extents) {
  if (rest.is_constant()) return modulo(rest.constant(), divisor);
  if (std::optional<int64_t> only = only_quotient(rest, divisor, extents))
    return rest - Index(divisor * *only);
  if (std::optional<Index> simpler = without_remainders(rest, divisor))
    return remainder(*simpler, divisor, extents);
  if (std::optional<Common> common = common_factor(rest, divisor, extents)) {
    Size factor = *even_quotient(divisor, common->factor);
    return remainder(common->parts.whole, factor, extents) * common->factor + common->parts.rest;
  }
  return of_atom({Atom::Kind::remainder, 0, std::make_shared<const Index>(rest), divisor});
}

}  // namespace

std::optional<Size> even_quotient(const Size& a, const Size& b) {
  if (a.is_known() && b.is_known()) {
    if (b.known() == 0 || a.known() % b.known() != 0) return std::nullopt;
    return a.known() / b.known();
  }
  if (b.is(1)) return a;
  Division division = divide(a, b);
  if (!division.rest.is(0)) return std::nullopt;
  return division.quotient;
}

Index quotient(const Index& a, const Size& divisor, const Extents& extents) {
  if (divisor.is(1)) return a;
  if (divisor.is(0)) return 0;
  Parts parts = split(a, divisor);
  return parts.whole + quotient_of_rest(parts.rest, divisor, extents);
}

Index remainder(const Index& a, const Size& divisor, const Extents& extents) {
  if (divisor.is(1) || divisor.is(0)) return 0;
  return remainder_of_rest(split(a, divisor).rest, divisor, extents);
}

}  // namespace smelt::loops
