// The symbols of one program: what they are called, the value each had when the program was written
// down (its hint), and the guards: the facts about them that the program relies on.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/size.h"

namespace smelt {

enum class Relation : uint8_t { eq, ne, lt, le, gt, ge };
std::string_view name_of(Relation relation);
bool compare(int64_t a, Relation relation, int64_t b);

// A fact about sizes, true for the hints.
struct Guard {
  Size left;
  Relation relation;
  Size right;
  std::string where;  // the user's line, or the op that asked; may be empty

  std::string str() const;  // "s0*2 <= 64"
  friend bool operator==(const Guard& a, const Guard& b) {
    return a.left == b.left && a.relation == b.relation && a.right == b.right;
  }
};

struct Symbol {
  std::string name;  // the user's, "batch" for instance; empty for s<index>
  int64_t hint = 0;
};

class SymbolTable {
 public:
  // A new symbol of that hint. Symbols stand for values of at least 2: a hint of 0 or 1 is an error
  // of the caller, who specialises such a dimension.
  Size add(int64_t hint, std::string name = "");

  const std::vector<Symbol>& symbols() const { return symbols_; }
  const std::vector<Guard>& guards() const { return guards_; }
  bool empty() const { return symbols_.empty(); }

  int64_t hint(const Size& size) const;
  std::vector<int64_t> hints() const;

  // Is it so? Decided by form or by "every symbol is at least 2" where possible; else by the hints,
  // and then the answer becomes a guard.
  bool holds(const Size& a, Relation relation, const Size& b);
  // The hint of the size; a guard pins it.
  int64_t specialise(const Size& size);
  void add_guard(Guard guard);

  // The first guard the values break, or nullptr. "Every symbol is at least 2" is a guard here too.
  const Guard* broken_by(std::span<const int64_t> values) const;

  // Asked for Guard::where whenever a guard is made.
  void set_locator(std::function<std::string()> locator) { locator_ = std::move(locator); }

 private:
  std::vector<Symbol> symbols_;
  std::vector<Guard> domains_;  // s<i> >= 2, one per symbol
  std::vector<Guard> guards_;
  std::function<std::string()> locator_;
};

}  // namespace smelt
