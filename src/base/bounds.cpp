// Two estimates, of which the better one counts. Intervals: every atom has one, and they are added
// and multiplied. Shifting: with every atom a written as low(a) + t, t >= 0, a polynomial whose
// coefficients are then all nonnegative is at least its constant: this sees that s0*s1 - s0 is
// positive, where the interval of the difference is unbounded.
#include "base/bounds.h"

#include <algorithm>

#include "base/polynomial.h"

namespace smelt {
namespace {

constexpr int64_t kLowest = Bounds::kLowest;
constexpr int64_t kHighest = Bounds::kHighest;

bool is_finite(int64_t end) { return end != kLowest && end != kHighest; }

// `unbounded` is the end that an infinite or overflowing sum runs to.
int64_t add_ends(int64_t a, int64_t b, int64_t unbounded) {
  int64_t sum;
  if (!is_finite(a) || !is_finite(b) || __builtin_add_overflow(a, b, &sum)) return unbounded;
  return sum;
}

int64_t multiply_ends(int64_t a, int64_t b, int64_t unbounded) {
  int64_t product;
  if (a == 0 || b == 0) return 0;
  if (!is_finite(a) || !is_finite(b) || __builtin_mul_overflow(a, b, &product)) return unbounded;
  return product;
}

Bounds atom_bounds(const Atom& atom) {
  if (atom.kind == Atom::Kind::symbol) return {2, kHighest};
  Bounds left = bounds(atom.left), right = bounds(atom.right);
  switch (atom.kind) {
    case Atom::Kind::min: return {std::min(left.low, right.low), std::min(left.high, right.high)};
    case Atom::Kind::max: return {std::max(left.low, right.low), std::max(left.high, right.high)};
    case Atom::Kind::modulo:
      if (right.low <= 0) return {};
      return {0, right.high == kHighest ? kHighest : right.high - 1};
    default:
      if (right.low <= 0 || left.low < 0) return {};
      return {right.high == kHighest ? 0 : left.low / right.high,
              left.high == kHighest ? kHighest : left.high / right.low};
  }
}

Bounds term_bounds(const Term& term) {
  Bounds product{1, 1};
  for (const Atom& atom : term.atoms) {
    Bounds factor = atom_bounds(atom);
    if (factor.low < 0) return {};
    product = {multiply_ends(product.low, factor.low, kHighest),
               multiply_ends(product.high, factor.high, kHighest)};
  }
  // A product of lows that overflows says only that the term is large.
  product.low = std::min(product.low, kHighest - 1);
  int64_t by = term.coefficient;
  if (by >= 0)
    return {std::min(multiply_ends(product.low, by, kHighest), kHighest - 1),
            multiply_ends(product.high, by, kHighest)};
  return {multiply_ends(product.high, by, kLowest),
          std::max(multiply_ends(product.low, by, kLowest), kLowest + 1)};
}

Bounds interval(const Size& size) {
  Bounds sum{0, 0};
  for (const Term& term : Polynomial::terms_of(size)) {
    Bounds part = term_bounds(term);
    sum = {add_ends(sum.low, part.low, kLowest), add_ends(sum.high, part.high, kHighest)};
  }
  return sum;
}

int64_t shifted_low(const Size& size) {
  Size shifted = 0;
  for (const Term& term : Polynomial::terms_of(size)) {
    Size product = term.coefficient;
    for (const Atom& atom : term.atoms) {
      int64_t low = atom_bounds(atom).low;
      if (low < 0) return kLowest;
      product = product * (Polynomial::to_size(atom) + low);
    }
    shifted = shifted + product;
  }
  int64_t constant = 0;
  for (const Term& term : Polynomial::terms_of(shifted)) {
    if (term.atoms.empty())
      constant = term.coefficient;
    else if (term.coefficient < 0)
      return kLowest;
  }
  return constant;
}

// Is some term but the constant positive, or negative? Without one shifting finds nothing, since
// terms only become more.
bool has_term(const Size& size, bool positive) {
  return std::ranges::any_of(Polynomial::terms_of(size), [&](const Term& term) {
    return !term.atoms.empty() && (term.coefficient > 0) == positive;
  });
}

}  // namespace

Bounds bounds(const Size& size) {
  if (auto known = size.as_known()) return {*known, *known};
  Bounds result = interval(size);
  if (result.low == kLowest && has_term(size, true)) result.low = shifted_low(size);
  if (result.high == kHighest && has_term(size, false)) {
    int64_t low_of_negative = shifted_low(size * -1);
    if (low_of_negative != kLowest) result.high = -low_of_negative;
  }
  return result;
}

Bounds difference_bounds(const Size& a, const Size& b) {
  if (a.is_known() && b.is_known()) {
    int64_t low = a.known() == b.known() ? 0 : a.known() < b.known() ? -1 : 1;
    return {low, low};
  }
  if (a.is(kHighest)) return {1, kHighest};
  if (b.is(kHighest)) return {kLowest, -1};
  return bounds(a - b);
}

}  // namespace smelt
