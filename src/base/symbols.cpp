#include "base/symbols.h"

#include <algorithm>
#include <array>

#include "base/bounds.h"
#include "base/error.h"

namespace smelt {
namespace {

Relation negated(Relation relation) {
  switch (relation) {
    case Relation::eq: return Relation::ne;
    case Relation::ne: return Relation::eq;
    case Relation::lt: return Relation::ge;
    case Relation::le: return Relation::gt;
    case Relation::gt: return Relation::le;
    default: return Relation::lt;
  }
}

// The relation of b to a, where this is that of a to b.
Relation mirrored(Relation relation) {
  switch (relation) {
    case Relation::lt: return Relation::gt;
    case Relation::le: return Relation::ge;
    case Relation::gt: return Relation::lt;
    case Relation::ge: return Relation::le;
    default: return relation;
  }
}

// Whether a - b, which lies within the bounds, makes the relation true or false whatever its value.
std::optional<bool> decided(Relation relation, Bounds difference) {
  auto [low, high] = difference;
  switch (relation) {
    case Relation::lt:
      if (high < 0 || low >= 0) return high < 0;
      break;
    case Relation::le:
      if (high <= 0 || low > 0) return high <= 0;
      break;
    case Relation::eq:
      if (low > 0 || high < 0) return false;
      if (low == 0 && high == 0) return true;
      break;
    default:
      if (auto opposite = decided(negated(relation), difference)) return !*opposite;
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Relation relation) {
  constexpr auto kNames = std::to_array<std::string_view>({"==", "!=", "<", "<=", ">", ">="});
  return kNames[static_cast<size_t>(relation)];
}

bool compare(int64_t a, Relation relation, int64_t b) {
  switch (relation) {
    case Relation::eq: return a == b;
    case Relation::ne: return a != b;
    case Relation::lt: return a < b;
    case Relation::le: return a <= b;
    case Relation::gt: return a > b;
    default: return a >= b;
  }
}

std::string Guard::str() const {
  return left.str() + " " + std::string(name_of(relation)) + " " + right.str();
}

Size SymbolTable::add(int64_t hint, std::string name) {
  SMELT_CHECK(hint >= 2,
              "a symbol stands for sizes of at least 2, not for " + std::to_string(hint));
  Size symbol = Size::symbol(static_cast<int>(symbols_.size()));
  symbols_.push_back({std::move(name), hint});
  domains_.push_back({symbol, Relation::ge, 2, "sizes 0 and 1 need a recording of their own"});
  return symbol;
}

int64_t SymbolTable::hint(const Size& size) const {
  return size.is_known() ? size.known() : size.evaluate(hints());
}

std::vector<int64_t> SymbolTable::hints() const {
  std::vector<int64_t> values;
  values.reserve(symbols_.size());
  for (const Symbol& symbol : symbols_) values.push_back(symbol.hint);
  return values;
}

bool SymbolTable::holds(const Size& a, Relation relation, const Size& b) {
  if (a.is_known() && b.is_known()) return compare(a.known(), relation, b.known());
  if (auto answer = decided(relation, difference_bounds(a, b))) return *answer;
  bool answer = compare(hint(a), relation, hint(b));
  add_guard({a, answer ? relation : negated(relation), b, ""});
  return answer;
}

int64_t SymbolTable::specialise(const Size& size) {
  int64_t value = hint(size);
  holds(size, Relation::eq, value);
  return value;
}

void SymbolTable::add_guard(Guard guard) {
  if (guard.left.is_known()) {
    std::swap(guard.left, guard.right);
    guard.relation = mirrored(guard.relation);
  }
  if (std::find(guards_.begin(), guards_.end(), guard) != guards_.end()) return;
  if (guard.where.empty() && locator_) guard.where = locator_();
  guards_.push_back(std::move(guard));
}

const Guard* SymbolTable::broken_by(std::span<const int64_t> values) const {
  for (const auto* list : {&domains_, &guards_}) {
    for (const Guard& guard : *list) {
      if (!compare(guard.left.evaluate(values), guard.relation, guard.right.evaluate(values)))
        return &guard;
    }
  }
  return nullptr;
}

}  // namespace smelt
