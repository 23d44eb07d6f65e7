#include "base/polynomial.h"

#include <algorithm>

#include "base/error.h"

namespace smelt {
namespace {

int64_t wrapping_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t wrapping_multiply(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

int64_t floor_quotient(int64_t a, int64_t b) {
  if (b == -1) return wrapping_multiply(a, -1);  // the machine traps on INT64_MIN / -1
  int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

// An operand of // or %: in parentheses unless it is a single name or number.
std::string operand(const Size& size) {
  std::string text = size.str();
  bool plain = size.is_known()
                   ? size.known() >= 0
                   : size.form()->terms.size() == 1 && size.form()->terms[0].coefficient == 1 &&
                         size.form()->terms[0].atoms.size() == 1;
  return plain ? text : "(" + text + ")";
}

std::string str(const Atom& atom) {
  switch (atom.kind) {
    case Atom::Kind::symbol: return "s" + std::to_string(atom.symbol);
    case Atom::Kind::floor_div: return "(" + operand(atom.left) + "//" + operand(atom.right) + ")";
    case Atom::Kind::modulo: return "(" + operand(atom.left) + "%" + operand(atom.right) + ")";
    case Atom::Kind::min: return "min(" + atom.left.str() + ", " + atom.right.str() + ")";
    case Atom::Kind::max: return "max(" + atom.left.str() + ", " + atom.right.str() + ")";
  }
  return "?";
}

void append(std::string& text, const Term& term) {
  bool negative = term.coefficient < 0;
  uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(term.coefficient) : term.coefficient;
  if (negative) text += '-';
  if (!negative && !text.empty()) text += '+';
  bool show_number = magnitude != 1 || term.atoms.empty();
  if (show_number) text += std::to_string(magnitude);
  for (const Atom& atom : term.atoms) {
    if (show_number || &atom != &term.atoms.front()) text += '*';
    text += str(atom);
  }
}

bool before(const Atom& a, const Atom& b) { return order(a, b) < 0; }

}  // namespace

int64_t Atom::apply(Kind kind, int64_t left, int64_t right) {
  if (kind == Kind::min) return std::min(left, right);
  if (kind == Kind::max) return std::max(left, right);
  SMELT_CHECK(right != 0, "a size is divided by zero");
  int64_t quotient = floor_quotient(left, right);
  return kind == Kind::floor_div
             ? quotient
             : wrapping_add(left, wrapping_multiply(-1, wrapping_multiply(quotient, right)));
}

std::strong_ordering order(const Atom& a, const Atom& b) {
  if (auto by_kind = a.kind <=> b.kind; by_kind != 0) return by_kind;
  if (auto by_symbol = a.symbol <=> b.symbol; by_symbol != 0) return by_symbol;
  if (auto by_left = order(a.left, b.left); by_left != 0) return by_left;
  return order(a.right, b.right);
}

std::strong_ordering order(std::span<const Atom> a, std::span<const Atom> b) {
  if (auto by_degree = b.size() <=> a.size(); by_degree != 0) return by_degree;
  for (size_t i = 0; i < a.size(); ++i) {
    if (auto by_atom = order(a[i], b[i]); by_atom != 0) return by_atom;
  }
  return std::strong_ordering::equal;
}

std::strong_ordering order(const Size& a, const Size& b) {
  if (a.is_known() && b.is_known()) return a.known() <=> b.known();
  if (a.is_known() != b.is_known())
    return a.is_known() ? std::strong_ordering::greater : std::strong_ordering::less;
  if (a.form() == b.form()) return std::strong_ordering::equal;
  const auto &left = a.form()->terms, &right = b.form()->terms;
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (auto by_atoms = order(left[i].atoms, right[i].atoms); by_atoms != 0) return by_atoms;
    if (auto by_number = left[i].coefficient <=> right[i].coefficient; by_number != 0)
      return by_number;
  }
  return left.size() <=> right.size();
}

std::vector<Term> Polynomial::terms_of(const Size& size) {
  if (!size.is_known()) return size.form()->terms;
  if (size.is(0)) return {};
  return {Term{size.known(), {}}};
}

Size Polynomial::to_size(std::vector<Term> terms) {
  std::sort(terms.begin(), terms.end(),
            [](const Term& a, const Term& b) { return order(a.atoms, b.atoms) < 0; });
  auto form = std::make_shared<Polynomial>();
  for (Term& term : terms) {
    auto& merged = form->terms;
    if (!merged.empty() && order(merged.back().atoms, term.atoms) == 0) {
      merged.back().coefficient = wrapping_add(merged.back().coefficient, term.coefficient);
    } else {
      if (!merged.empty() && merged.back().coefficient == 0) merged.pop_back();
      merged.push_back(std::move(term));
    }
  }
  if (!form->terms.empty() && form->terms.back().coefficient == 0) form->terms.pop_back();
  if (form->terms.empty()) return 0;
  // The constant stands last, so alone it is the first.
  if (form->terms.front().atoms.empty()) return form->terms.front().coefficient;
  return Size(std::move(form));
}

Size Polynomial::to_size(Atom atom) {
  Term term{1, {}};
  term.atoms.push_back(std::move(atom));
  auto form = std::make_shared<Polynomial>();
  form->terms.push_back(std::move(term));
  return Size(std::move(form));
}

std::string Polynomial::str() const {
  std::string text;
  for (const Term& term : terms) append(text, term);
  return text;
}

Term multiply(const Term& a, const Term& b) {
  Term term{wrapping_multiply(a.coefficient, b.coefficient), {}};
  std::merge(a.atoms.begin(), a.atoms.end(), b.atoms.begin(), b.atoms.end(),
             std::back_inserter(term.atoms), before);
  return term;
}

std::optional<Term> divide(const Term& a, const Term& b) {
  if (!std::includes(a.atoms.begin(), a.atoms.end(), b.atoms.begin(), b.atoms.end(), before))
    return std::nullopt;
  Term term{floor_quotient(a.coefficient, b.coefficient), {}};
  if (term.coefficient == 0) return std::nullopt;
  std::set_difference(a.atoms.begin(), a.atoms.end(), b.atoms.begin(), b.atoms.end(),
                      std::back_inserter(term.atoms), before);
  return term;
}

// By one term, every term is divided by itself and what is left of its coefficient lies in [0, b):
// this is also the canonical rest. By several terms, long division with the leading one; only an
// even result is simpler than what we had.
Division divide(const Size& a, const Size& b) {
  std::vector<Term> divisor = Polynomial::terms_of(b);
  SMELT_CHECK(!divisor.empty(), "a size is divided by zero");
  Division division{0, a};
  if (divisor.size() == 1) {
    std::vector<Term> quotient;
    for (const Term& term : Polynomial::terms_of(a)) {
      if (auto part = divide(term, divisor[0])) quotient.push_back(*part);
    }
    division.quotient = Polynomial::to_size(std::move(quotient));
    division.rest = a - division.quotient * b;
    return division;
  }
  while (!division.rest.is(0)) {
    std::optional<Term> part = divide(Polynomial::terms_of(division.rest)[0], divisor[0]);
    if (!part) return {0, a};
    Size step = Polynomial::to_size({*part});
    Size rest = division.rest - step * b;
    // The leading term must go entirely: a coefficient that does not divide would never end.
    if (!rest.is(0) && order(Polynomial::terms_of(rest)[0].atoms,
                             Polynomial::terms_of(division.rest)[0].atoms) <= 0)
      return {0, a};
    division.quotient = division.quotient + step;
    division.rest = rest;
  }
  return division;
}

}  // namespace smelt
