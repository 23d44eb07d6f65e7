#include "base/size.h"

#include <algorithm>
#include <numeric>

#include "base/bounds.h"
#include "base/error.h"
#include "base/polynomial.h"

namespace smelt {
namespace {

// Takes the greatest common divisor out of all coefficients and a known divisor: (2*s0)//4 is
// s0//2.
void cancel_common_factor(Size& a, Size& b) {
  if (!b.is_known()) return;
  int64_t common = b.known();
  std::vector<Term> terms = Polynomial::terms_of(a);
  for (const Term& term : terms) common = std::gcd(common, term.coefficient);
  if (common <= 1) return;
  for (Term& term : terms) term.coefficient /= common;
  a = Polynomial::to_size(std::move(terms));
  b = b.known() / common;
}

// 0 <= a < b for all values.
bool lies_below(const Size& a, const Size& b) {
  return bounds(a).low >= 0 && difference_bounds(a, b).high < 0;
}

Size commutative(Atom::Kind kind, const Size& a, const Size& b) {
  return order(a, b) <= 0 ? Polynomial::to_size(Atom{kind, -1, a, b})
                          : Polynomial::to_size(Atom{kind, -1, b, a});
}

bool both_known(const Size& a, const Size& b) { return a.is_known() && b.is_known(); }

}  // namespace

Size Size::symbol(int index) {
  SMELT_CHECK(index >= 0, "a symbol has no negative index");
  return Polynomial::to_size(Atom{Atom::Kind::symbol, index, 0, 0});
}

int64_t Size::known() const {
  SMELT_CHECK(!form_, "the size " + str() + " is not a known integer");
  return value_;
}

std::optional<int64_t> Size::as_known() const {
  if (form_) return std::nullopt;
  return value_;
}

int64_t Size::evaluate(std::span<const int64_t> values) const {
  if (!form_) return value_;
  uint64_t sum = 0;
  for (const Term& term : form_->terms) {
    uint64_t product = term.coefficient;
    for (const Atom& atom : term.atoms) {
      if (atom.kind == Atom::Kind::symbol) {
        SMELT_CHECK(static_cast<size_t>(atom.symbol) < values.size(),
                    "no value for the symbol in " + str());
        product *= values[atom.symbol];
      } else {
        product *= Atom::apply(atom.kind, atom.left.evaluate(values), atom.right.evaluate(values));
      }
    }
    sum += product;
  }
  return static_cast<int64_t>(sum);
}

std::optional<int> Size::as_symbol() const {
  if (!form_ || form_->terms.size() != 1) return std::nullopt;
  const Term& term = form_->terms[0];
  if (term.coefficient != 1 || term.atoms.size() != 1 || term.atoms[0].kind != Atom::Kind::symbol)
    return std::nullopt;
  return term.atoms[0].symbol;
}

int Size::highest_symbol() const {
  int highest = -1;
  if (!form_) return highest;
  for (const Term& term : form_->terms) {
    for (const Atom& atom : term.atoms) {
      highest =
          std::max({highest, atom.symbol, atom.left.highest_symbol(), atom.right.highest_symbol()});
    }
  }
  return highest;
}

bool Size::uses_symbol(int index) const {
  if (!form_) return false;
  for (const Term& term : form_->terms)
    for (const Atom& atom : term.atoms)
      if (atom.symbol == index || atom.left.uses_symbol(index) || atom.right.uses_symbol(index))
        return true;
  return false;
}

std::string Size::str() const { return form_ ? form_->str() : std::to_string(value_); }

Size operator+(const Size& a, const Size& b) {
  if (both_known(a, b))
    return static_cast<int64_t>(static_cast<uint64_t>(a.value_) + static_cast<uint64_t>(b.value_));
  std::vector<Term> terms = Polynomial::terms_of(a);
  for (Term& term : Polynomial::terms_of(b)) terms.push_back(std::move(term));
  return Polynomial::to_size(std::move(terms));
}

Size operator-(const Size& a, const Size& b) {
  if (both_known(a, b))
    return static_cast<int64_t>(static_cast<uint64_t>(a.value_) - static_cast<uint64_t>(b.value_));
  return a + b * -1;
}

Size operator*(const Size& a, const Size& b) {
  if (both_known(a, b))
    return static_cast<int64_t>(static_cast<uint64_t>(a.value_) * static_cast<uint64_t>(b.value_));
  std::vector<Term> terms;
  for (const Term& left : Polynomial::terms_of(a)) {
    for (const Term& right : Polynomial::terms_of(b)) terms.push_back(multiply(left, right));
  }
  return Polynomial::to_size(std::move(terms));
}

Size floor_div(const Size& a, const Size& b) {
  if (both_known(a, b)) return Atom::apply(Atom::Kind::floor_div, a.value_, b.value_);
  // floor((q*b + r) / b) is q + floor(r / b).
  auto [quotient, rest] = divide(a, b);
  if (rest.is(0) || lies_below(rest, b)) return quotient;
  Size divisor = b;
  cancel_common_factor(rest, divisor);
  return quotient + Polynomial::to_size(Atom{Atom::Kind::floor_div, -1, rest, divisor});
}

Size modulo(const Size& a, const Size& b) {
  if (both_known(a, b)) return Atom::apply(Atom::Kind::modulo, a.value_, b.value_);
  Size rest = divide(a, b).rest;
  if (rest.is(0) || lies_below(rest, b)) return rest;
  return Polynomial::to_size(Atom{Atom::Kind::modulo, -1, rest, b});
}

Size min(const Size& a, const Size& b) {
  if (both_known(a, b)) return std::min(a.value_, b.value_);
  Bounds difference = difference_bounds(a, b);
  if (difference.high <= 0) return a;
  if (difference.low >= 0) return b;
  return commutative(Atom::Kind::min, a, b);
}

Size max(const Size& a, const Size& b) {
  if (both_known(a, b)) return std::max(a.value_, b.value_);
  Bounds difference = difference_bounds(a, b);
  if (difference.low >= 0) return a;
  if (difference.high <= 0) return b;
  return commutative(Atom::Kind::max, a, b);
}

bool operator==(const Size& a, const Size& b) {
  if (both_known(a, b)) return a.value_ == b.value_;
  return a.form_ == b.form_ || order(a, b) == 0;
}

Sizes to_sizes(std::span<const int64_t> values) { return Sizes(values.begin(), values.end()); }

Size product(std::span<const Size> sizes) {
  Size result = 1;
  for (const Size& size : sizes) result = result * size;
  return result;
}

bool all_known(std::span<const Size> sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](const Size& size) { return size.is_known(); });
}

std::string str(std::span<const Size> sizes) {
  std::string text = "[";
  for (const Size& size : sizes) {
    if (&size != &sizes.front()) text += ", ";
    text += size.str();
  }
  return text + "]";
}

}  // namespace smelt
