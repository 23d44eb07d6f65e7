// The normal form behind a symbolic Size: a sum of terms, each an integer times a product of atoms.
// An atom is a symbol, or a floor_div, modulo, min or max that could not be simplified away.
// Arithmetic wraps around at 64 bits, as the machine's does.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/size.h"

namespace smelt {

struct Atom {
  enum class Kind : uint8_t { symbol, floor_div, modulo, min, max };

  Kind kind = Kind::symbol;
  int32_t symbol = -1;  // of a symbol
  Size left, right;     // the operands of the others

  // The value of the operation when its operands have these values; not for a symbol.
  static int64_t apply(Kind kind, int64_t left, int64_t right);
};

struct Term {
  int64_t coefficient = 0;
  std::vector<Atom> atoms;  // sorted; s0*s0 has s0 twice
};

// Total orders, the same in every process. Terms: those of higher degree first, the constant last;
// this is a monomial order, which division relies on. Coefficients do not matter to it.
std::strong_ordering order(const Atom& a, const Atom& b);
std::strong_ordering order(const Size& a, const Size& b);
std::strong_ordering order(std::span<const Atom> a, std::span<const Atom> b);

class Polynomial {
 public:
  // In order, no two with the same atoms, no coefficient zero, at least one with atoms.
  std::vector<Term> terms;

  // The terms of a Size; none for 0, one without atoms for another known one.
  static std::vector<Term> terms_of(const Size& size);
  // Any terms, brought into normal form.
  static Size to_size(std::vector<Term> terms);
  static Size to_size(Atom atom);

  std::string str() const;
};

Term multiply(const Term& a, const Term& b);
// a / b where b's atoms all occur in a, with the coefficients divided rounding down. Nothing where
// they don't, or where the quotient is 0.
std::optional<Term> divide(const Term& a, const Term& b);

// a == quotient*b + rest, for every value of the symbols.
struct Division {
  Size quotient;
  Size rest;
};
// Divides as far as that makes the rest simpler; a division that comes out even always does.
Division divide(const Size& a, const Size& b);

}  // namespace smelt
