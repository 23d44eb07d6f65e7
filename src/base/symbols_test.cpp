#include "base/symbols.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"

namespace smelt {
namespace {

std::string guards_of(const SymbolTable& table) {
  std::string text;
  for (const Guard& guard : table.guards()) text += guard.str() + "; ";
  return text;
}

TEST(SymbolTable, DecidesByForm) {
  SymbolTable table;
  Size s0 = table.add(8, "batch"), s1 = table.add(5);
  EXPECT_TRUE(table.holds(3, Relation::lt, 4));
  EXPECT_TRUE(table.holds(s0, Relation::eq, s0));
  EXPECT_FALSE(table.holds(s0, Relation::eq, 1));
  EXPECT_TRUE(table.holds(s0, Relation::ne, 0));
  EXPECT_TRUE(table.holds(s0 * 4, Relation::gt, 0));
  EXPECT_TRUE(table.holds(s0, Relation::ge, 2));
  EXPECT_FALSE(table.holds(s0 * s1, Relation::le, s1));
  EXPECT_TRUE(table.holds(s0 + 1, Relation::gt, s0));
  EXPECT_TRUE(table.holds(s0, Relation::lt, std::numeric_limits<int64_t>::max()));
  EXPECT_EQ(guards_of(table), "");
}

TEST(SymbolTable, DecidesByHintsAndGuards) {
  SymbolTable table;
  Size s0 = table.add(8), s1 = table.add(5);
  EXPECT_TRUE(table.holds(s0 * 2, Relation::le, 64));
  EXPECT_TRUE(table.holds(s0 * 2, Relation::le, 64));
  EXPECT_FALSE(table.holds(s0, Relation::eq, s1));
  EXPECT_FALSE(table.holds(3, Relation::gt, s1));
  EXPECT_EQ(table.specialise(s0 + s1), 13);
  EXPECT_EQ(table.specialise(s0 - s0 + 4), 4);
  EXPECT_EQ(guards_of(table), "2*s0 <= 64; s0 != s1; s1 >= 3; s0+s1 == 13; ");
}

TEST(SymbolTable, AsksWhereGuardsComeFrom) {
  SymbolTable table;
  Size s0 = table.add(8);
  table.set_locator([] { return "model.py:12"; });
  table.holds(s0, Relation::gt, 4);
  table.add_guard({s0, Relation::lt, 100, "elsewhere"});
  EXPECT_EQ(table.guards()[0].where, "model.py:12");
  EXPECT_EQ(table.guards()[1].where, "elsewhere");
}

TEST(SymbolTable, FindsTheBrokenGuard) {
  SymbolTable table;
  Size s0 = table.add(8), s1 = table.add(5);
  table.holds(s0, Relation::gt, s1);
  auto broken = [&](int64_t a, int64_t b) {
    const Guard* guard = table.broken_by(std::vector<int64_t>{a, b});
    return guard ? guard->str() : "";
  };
  EXPECT_EQ(broken(9, 8), "");
  EXPECT_EQ(broken(8, 8), "s0 > s1");
  EXPECT_EQ(broken(9, 1), "s1 >= 2");
}

TEST(SymbolTable, HasHints) {
  SymbolTable table;
  Size s0 = table.add(8);
  EXPECT_EQ(table.hint(s0 * 3 + 1), 25);
  EXPECT_EQ(table.hint(7), 7);
  EXPECT_EQ(table.hints(), std::vector<int64_t>{8});
  EXPECT_THROW(table.add(1), InternalError);
}

}  // namespace
}  // namespace smelt
