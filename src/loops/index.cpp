#include "loops/index.h"

#include <algorithm>

#include "base/bounds.h"
#include "base/error.h"
#include "base/polynomial.h"

namespace smelt::loops {
namespace {

using SizeRange = Index::SizeRange;

bool is_positive(const Size& size) { return bounds(size).low >= 1; }

std::optional<SizeRange> range_of(const Atom& atom, const Extents& extents) {
  switch (atom.kind) {
    case Atom::Kind::value: return std::nullopt;
    case Atom::Kind::dim: {
      if (static_cast<size_t>(atom.id) >= extents.dims.size()) return std::nullopt;
      const Size& extent = extents.dims[atom.id];
      if (extent.is_known()) return SizeRange{0, std::max<int64_t>(extent.known() - 1, 0)};
      return SizeRange{0, extent - 1};
    }
    case Atom::Kind::quotient: {
      std::optional<SizeRange> inner = atom.inner->size_range(extents);
      if (!inner || !is_positive(atom.divisor)) return std::nullopt;
      return SizeRange{floor_div(inner->low, atom.divisor), floor_div(inner->high, atom.divisor)};
    }
    case Atom::Kind::remainder: {
      if (!is_positive(atom.divisor)) return std::nullopt;
      std::optional<SizeRange> inner = atom.inner->size_range(extents);
      Size high = atom.divisor - 1;
      if (inner && bounds(inner->low).low >= 0 && difference_bounds(inner->high, high).high < 0)
        high = inner->high;
      return SizeRange{0, high};
    }
  }
  return std::nullopt;
}

// Where atoms stand in the text: values last, since they are what a reader looks for.
int rank(Atom::Kind kind) {
  switch (kind) {
    case Atom::Kind::dim: return 0;
    case Atom::Kind::quotient: return 1;
    case Atom::Kind::remainder: return 2;
    case Atom::Kind::value: return 3;
  }
  return 4;
}

}  // namespace

std::strong_ordering order(const Atom& a, const Atom& b) {
  if (a.kind != b.kind) return rank(a.kind) <=> rank(b.kind);
  if (a.kind == Atom::Kind::dim || a.kind == Atom::Kind::value) return a.id <=> b.id;
  if (auto by_inner = order(*a.inner, *b.inner); by_inner != 0) return by_inner;
  return order(a.divisor, b.divisor);
}

std::strong_ordering order(const Index& a, const Index& b) {
  if (&a == &b) return std::strong_ordering::equal;
  const std::vector<Term>&left = a.terms(), &right = b.terms();
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (auto by_atom = order(left[i].atom, right[i].atom); by_atom != 0) return by_atom;
    if (auto by_stride = order(left[i].stride, right[i].stride); by_stride != 0) return by_stride;
  }
  if (auto by_number = left.size() <=> right.size(); by_number != 0) return by_number;
  return order(a.constant(), b.constant());
}

bool operator==(const Atom& a, const Atom& b) { return order(a, b) == 0; }

Index of_atom(Atom atom) {
  Index result;
  result.terms_.push_back({std::move(atom), 1});
  return result;
}

Index Index::dim(int32_t dim) { return of_atom({Atom::Kind::dim, dim, nullptr, 1}); }
Index Index::value(int32_t value) { return of_atom({Atom::Kind::value, value, nullptr, 1}); }

std::optional<Size> Index::stride_of(int32_t dim) const {
  Size stride = 0;
  for (const Term& term : terms_) {
    if (term.atom.kind == Atom::Kind::dim) {
      if (term.atom.id == dim) stride = term.stride;
    } else if (term.atom.inner && term.atom.inner->uses_dim(dim)) {
      return std::nullopt;
    }
  }
  return stride;
}

bool Index::uses_dim(int32_t dim) const {
  return std::any_of(terms_.begin(), terms_.end(), [dim](const Term& term) {
    if (term.atom.kind == Atom::Kind::dim) return term.atom.id == dim;
    return term.atom.inner && term.atom.inner->uses_dim(dim);
  });
}

bool Index::uses_values() const {
  return std::any_of(terms_.begin(), terms_.end(), [](const Term& term) {
    if (term.atom.kind == Atom::Kind::value) return true;
    return term.atom.inner && term.atom.inner->uses_values();
  });
}

bool Index::is_affine() const {
  return std::none_of(terms_.begin(), terms_.end(),
                      [](const Term& term) { return term.atom.inner != nullptr; });
}

std::optional<SizeRange> Index::size_range(const Extents& extents) const {
  SizeRange sum{constant_, constant_};
  for (const Term& term : terms_) {
    std::optional<SizeRange> range = range_of(term.atom, extents);
    if (!range) return std::nullopt;
    Bounds stride = bounds(term.stride);
    if (stride.low < 0) std::swap(range->low, range->high);
    if (stride.low < 0 && stride.high > 0) return std::nullopt;
    sum.low = sum.low + term.stride * range->low;
    sum.high = sum.high + term.stride * range->high;
  }
  return sum;
}

std::optional<Index::Range> Index::range(const Extents& extents) const {
  if (uses_values()) return std::nullopt;
  std::optional<SizeRange> range = size_range(extents);
  if (!range || !range->low.is_known() || !range->high.is_known()) return std::nullopt;
  return Range{range->low.known(), range->high.known()};
}

bool Index::lies_below(const Size& bound, const Extents& extents) const {
  std::optional<SizeRange> range = size_range(extents);
  return range && bounds(range->low).low >= 0 && difference_bounds(range->high, bound).high < 0;
}

Index Index::substitute(std::span<const Index> dims, const Extents& extents) const {
  Index result(constant_);
  for (const Term& term : terms_) {
    const Atom& atom = term.atom;
    if (atom.kind == Atom::Kind::dim) {
      SMELT_CHECK(static_cast<size_t>(atom.id) < dims.size(),
                  "nothing stands for i" + std::to_string(atom.id) + " in " + str());
      result = result + dims[atom.id] * term.stride;
    } else if (atom.kind == Atom::Kind::value) {
      result.add(term);
    } else {
      Index inner = atom.inner->substitute(dims, extents);
      Index part = atom.kind == Atom::Kind::quotient ? quotient(inner, atom.divisor, extents)
                                                     : remainder(inner, atom.divisor, extents);
      result = result + part * term.stride;
    }
  }
  return result;
}

Index Index::renumber_values(std::span<const int32_t> values) const {
  if (!uses_values()) return *this;
  Index result(constant_);
  for (Term term : terms_) {
    if (term.atom.kind == Atom::Kind::value) {
      term.atom.id = values[term.atom.id];
    } else if (term.atom.inner) {
      term.atom.inner = std::make_shared<const Index>(term.atom.inner->renumber_values(values));
    }
    result.add(term);
  }
  return result;
}

void Index::add(const Term& term) {
  if (term.stride.is(0)) return;
  auto place =
      std::lower_bound(terms_.begin(), terms_.end(), term,
                       [](const Term& a, const Term& b) { return order(a.atom, b.atom) < 0; });
  if (place == terms_.end() || order(place->atom, term.atom) != 0) {
    terms_.insert(place, term);
    return;
  }
  place->stride = place->stride + term.stride;
  if (place->stride.is(0)) terms_.erase(place);
}

// (x // d) * d + x % d is x, and (x // d) % e * d + x % d is x % (d*e): what a reshape took apart
// and another one puts together again.
void Index::join_remainders() {
  for (size_t i = 0; i < terms_.size(); ++i) {
    if (terms_[i].atom.kind != Atom::Kind::remainder) continue;
    Term low = terms_[i];
    const Index& x = *low.atom.inner;
    Index high = quotient(x, low.atom.divisor, {});
    if (high.terms_.size() != 1 || !high.constant_.is(0) || !high.terms_[0].stride.is(1)) continue;
    Size stride = low.stride * low.atom.divisor;
    auto other = std::find_if(terms_.begin(), terms_.end(), [&](const Term& term) {
      if (!(term.stride == stride)) return false;
      return term.atom == high.terms_[0].atom ||
             (term.atom.kind == Atom::Kind::remainder && *term.atom.inner == high);
    });
    if (other == terms_.end()) continue;
    Index joined = x;
    if (!(other->atom == high.terms_[0].atom))
      joined = remainder(x, low.atom.divisor * other->atom.divisor, {});
    add({other->atom, stride * -1});
    add({low.atom, low.stride * -1});
    *this = *this + joined * low.stride;
    return;  // the sum looked at all remainders again
  }
}

Index operator+(const Index& a, const Index& b) {
  if (a.terms_.size() < b.terms_.size()) return b + a;
  Index result = a;
  result.constant_ = a.constant_ + b.constant_;
  for (const Term& term : b.terms_) result.add(term);
  if (!b.terms_.empty()) result.join_remainders();
  return result;
}

Index operator-(const Index& a, const Index& b) { return a + b * -1; }

Index operator*(const Index& a, const Size& factor) {
  Index result(a.constant_ * factor);
  if (factor.is(0)) return result;
  result.terms_ = a.terms_;
  for (Term& term : result.terms_) term.stride = term.stride * factor;
  return result;
}

Index linear(std::span<const Index> at, std::span<const Size> strides) {
  SMELT_CHECK(at.size() == strides.size(), "a position has as many parts as there are strides");
  Index sum;
  for (size_t d = 0; d < at.size(); ++d) sum = sum + at[d] * strides[d];
  return sum;
}

Indices unravel(const Index& flat, std::span<const Size> sizes, const Extents& extents) {
  Indices at(sizes.size());
  Index rest = flat;
  for (size_t d = sizes.size(); d-- > 0;) {
    at[d] = d == 0 ? rest : remainder(rest, sizes[d], extents);
    if (d != 0) rest = quotient(rest, sizes[d], extents);
  }
  return at;
}

Index ravel(std::span<const Index> at, std::span<const Size> sizes) {
  SMELT_CHECK(at.size() == sizes.size(), "a position has as many parts as there are sizes");
  Index flat;
  for (size_t d = 0; d < at.size(); ++d) flat = flat * sizes[d] + at[d];
  return flat;
}

}  // namespace smelt::loops
