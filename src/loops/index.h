// Where in memory: an integer expression over loop dimensions and computed integers, kept as a sum
//   constant + stride * atom + ...
// so that strides can be read off. An atom is a loop dimension, an i64 value of the kernel (an
// indirect access), or the floor quotient or remainder of another Index by a size (a reshape).
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/size.h"

namespace smelt {
class Reader;
}

namespace smelt::loops {

class Index;

struct Atom {
  enum class Kind : uint8_t { dim, value, quotient, remainder };
  Kind kind = Kind::dim;
  int32_t id = 0;                      // dim: number of the dimension; value: of the instruction
  std::shared_ptr<const Index> inner;  // quotient, remainder
  Size divisor = 1;

  friend bool operator==(const Atom& a, const Atom& b);
};
bool operator==(const Atom& a, const Atom& b);

struct Term {
  Atom atom;
  Size stride = 1;
  friend bool operator==(const Term&, const Term&) = default;
};

// What is known of the atoms: the extents of the dimensions. A value's range is not known, except
// that an index made of it is in range (kernels check it).
struct Extents {
  std::span<const Size> dims;
};

class Index {
 public:
  Index() = default;
  Index(Size constant) : constant_(std::move(constant)) {}  // NOLINT: a constant is an index
  Index(int64_t constant) : constant_(constant) {}          // NOLINT: likewise
  Index(int constant) : constant_(static_cast<int64_t>(constant)) {}  // NOLINT: likewise
  static Index dim(int32_t dim);
  static Index value(int32_t value);

  const Size& constant() const { return constant_; }
  // In a fixed order, no two with the same atom, none 0.
  const std::vector<Term>& terms() const { return terms_; }
  bool is_constant() const { return terms_.empty(); }

  // The factor of a dimension, also if it is 0; nothing if the dimension stands in a quotient or
  // remainder, so that the index is not linear in it.
  std::optional<Size> stride_of(int32_t dim) const;
  bool uses_dim(int32_t dim) const;  // anywhere
  bool uses_values() const;          // anywhere
  bool is_affine() const;            // no quotient, no remainder

  // [smallest, largest] over the extents where they are known numbers and no value is used.
  struct Range {
    int64_t low, high;
  };
  std::optional<Range> range(const Extents& extents) const;
  // The same where extents or strides may be symbolic; nothing where it can't be told. An extent of
  // 0 counts as 1: nothing is done then anyway.
  struct SizeRange {
    Size low, high;
  };
  std::optional<SizeRange> size_range(const Extents& extents) const;
  // Certainly in [0, bound).
  bool lies_below(const Size& bound, const Extents& extents) const;

  // Each dimension replaced by an index over other dimensions, each value by another. With the
  // extents of the new dimensions, quotients and remainders are simplified again.
  Index substitute(std::span<const Index> dims, const Extents& extents = {}) const;
  Index renumber_values(std::span<const int32_t> values) const;

  // "3 + 16*i0 + i1 + 4*(i2 // 5) + v7": dims are i<n>, values v<n>.
  std::string str() const;
  static Index read(Reader& reader);  // the inverse of str(), inside a longer text

  friend Index operator+(const Index& a, const Index& b);
  friend Index operator-(const Index& a, const Index& b);
  friend Index operator*(const Index& a, const Size& factor);
  // Rounds down. What the extents allow is simplified: (4*i0 + i1) // 4 is i0 for i1 < 4. A divisor
  // of 0, the size of an empty tensor that nobody visits, gives 0.
  friend Index quotient(const Index& a, const Size& divisor, const Extents& extents);
  friend Index remainder(const Index& a, const Size& divisor, const Extents& extents);
  friend bool operator==(const Index&, const Index&) = default;

 private:
  friend Index of_atom(Atom atom);
  void add(const Term& term);
  void join_remainders();
  Size constant_ = 0;
  std::vector<Term> terms_;
};

Index operator+(const Index& a, const Index& b);
Index operator-(const Index& a, const Index& b);
Index operator*(const Index& a, const Size& factor);
Index quotient(const Index& a, const Size& divisor, const Extents& extents);
Index remainder(const Index& a, const Size& divisor, const Extents& extents);

// a / b where it comes out even for all values of the symbols.
std::optional<Size> even_quotient(const Size& a, const Size& b);
// The index that is just this atom, not simplified.
Index of_atom(Atom atom);
// A total order, the same in every process: dims, quotients, remainders, values.
std::strong_ordering order(const Atom& a, const Atom& b);
std::strong_ordering order(const Index& a, const Index& b);

using Indices = std::vector<Index>;

// Σ at[d] * strides[d].
Index linear(std::span<const Index> at, std::span<const Size> strides);
// The multi-dimensional position of a flat row-major one, and back.
Indices unravel(const Index& flat, std::span<const Size> sizes, const Extents& extents);
Index ravel(std::span<const Index> at, std::span<const Size> sizes);

}  // namespace smelt::loops
