#include "base/size.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>

#include "base/bounds.h"
#include "base/error.h"

namespace smelt {
namespace {

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

const Size s0 = Size::symbol(0);
const Size s1 = Size::symbol(1);
const Size s2 = Size::symbol(2);

TEST(Size, OfIntegersIsAnInteger) {
  EXPECT_EQ(Size(7) + 5, 12);
  EXPECT_EQ(Size(7) * 5 - 5, 30);
  EXPECT_EQ(floor_div(-7, 2), -4);
  EXPECT_EQ(modulo(-7, 2), 1);
  EXPECT_EQ(modulo(7, -2), -1);
  EXPECT_EQ(min(Size(3), 4), 3);
  EXPECT_EQ(max(Size(3), 4), 4);
  EXPECT_EQ((s0 - s0).known(), 0);
  EXPECT_FALSE(s0.as_known());
  EXPECT_THROW((s0 + 1).known(), InternalError);
  EXPECT_THROW(floor_div(3, 0), InternalError);
}

TEST(Size, HasOneForm) {
  EXPECT_EQ(s0 + s0, 2 * s0);
  EXPECT_EQ(s0 * s1, s1 * s0);
  EXPECT_EQ((s0 + 1) * (s0 - 1), s0 * s0 - 1);
  EXPECT_EQ((s0 + s1) * 3 - 3 * s1, s0 * 3);
  EXPECT_EQ(floor_div(s0, 4), floor_div(s0, 4));
  EXPECT_EQ(min(s0, s1), min(s1, s0));
  EXPECT_FALSE(s0 == s1);
  EXPECT_EQ(s0.as_symbol(), 0);
  EXPECT_FALSE((s0 * 2).as_symbol());
  EXPECT_EQ(floor_div(s0 * s2, 3).highest_symbol(), 2);
  EXPECT_EQ(Size(3).highest_symbol(), -1);
}

TEST(Size, DividesWhatComesOutEven) {
  EXPECT_EQ(floor_div(s0 * 5, 5), s0);
  EXPECT_EQ(floor_div(s0 * s1, s0), s1);
  EXPECT_EQ(floor_div(s0 * s1 * 6, s0 * 2), s1 * 3);
  EXPECT_EQ(floor_div((s0 + s1) * s2, s0 + s1), s2);
  EXPECT_EQ(floor_div((s0 + 1) * (s1 - 4), s1 - 4), s0 + 1);
  EXPECT_EQ(floor_div(s0 * s0 - 1, s0 - 1), s0 + 1);
  EXPECT_EQ(modulo(s0 * 12, 4), 0);
  EXPECT_EQ(modulo(s0 * s1 + s0, s0), 0);
}

TEST(Size, DividesAsFarAsItCan) {
  EXPECT_EQ(floor_div(s0 * 4 + 3, 4), s0);
  EXPECT_EQ(modulo(s0 * 4 + 3, 4), 3);
  EXPECT_EQ(floor_div(s0 - 1, 2).str(), "((s0+1)//2)-1");
  EXPECT_EQ(floor_div(s0 * 2, 4), floor_div(s0, 2));
  EXPECT_EQ(floor_div(s0, s0 + 1), 0);
  EXPECT_EQ(modulo(s0, s0 + 1), s0);
  EXPECT_EQ(modulo(s0 + 6, 4).str(), "((s0+2)%4)");
}

TEST(Size, KnowsWhatIsSmaller) {
  EXPECT_EQ(max(s0, 1), s0);
  EXPECT_EQ(min(s0, 2), 2);
  EXPECT_EQ(min(s0, kEnd), s0);
  EXPECT_EQ(max(s0 * s1, s1), s0 * s1);
  EXPECT_EQ(min(s0 + 3, s0), s0);
  EXPECT_EQ(max(modulo(s0, 4), 3), 3);
  EXPECT_EQ(min(s0, 8).str(), "min(s0, 8)");
}

TEST(Size, Prints) {
  EXPECT_EQ((2 * s0 * s1 + 3).str(), "2*s0*s1+3");
  EXPECT_EQ((3 - s0).str(), "-s0+3");
  EXPECT_EQ(floor_div(s0, 4).str(), "(s0//4)");
  EXPECT_EQ((floor_div(s0 * s1, 4) * 2).str(), "2*((s0*s1)//4)");
  EXPECT_EQ(str(Sizes{2, s0, 3 * s0}), "[2, s0, 3*s0]");
  EXPECT_EQ(str(Sizes{}), "[]");
}

TEST(Size, ParsesWithPythonsPrecedence) {
  EXPECT_EQ(Size::parse("s0+s1//2*3"), s0 + floor_div(s1, 2) * 3);
  EXPECT_EQ(Size::parse(" ( s0 + 3 ) % 4 "), modulo(s0 + 3, 4));
  EXPECT_EQ(Size::parse("-5//2"), -3);
  EXPECT_EQ(Size::parse("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  for (const char* wrong :
       {"", "s", "t0", "s0+", "(s0", "3s0", "s0//0", "9223372036854775809", "s0 s1", "sx", "s1x"}) {
    EXPECT_FALSE(Size::parse(wrong)) << wrong;
  }
}

TEST(Size, EvaluatesWithValues) {
  std::array<int64_t, 2> values{7, 3};
  EXPECT_EQ((s0 * s1 - 2).evaluate(values), 19);
  EXPECT_EQ(floor_div(s0, s1).evaluate(values), 2);
  EXPECT_EQ(modulo(s0, s1).evaluate(values), 1);
  EXPECT_EQ(max(s0 - 5, s1).evaluate(values), 3);
  EXPECT_THROW(s2.evaluate(values), InternalError);
}

TEST(Size, MultipliesLists) {
  EXPECT_EQ(product(Sizes{}), 1);
  EXPECT_EQ(product(Sizes{2, s0, 3}), s0 * 6);
  EXPECT_TRUE(all_known(Sizes{1, 2}));
  EXPECT_FALSE(all_known(Sizes{1, s0}));
  EXPECT_EQ(to_sizes(std::array<int64_t, 2>{4, 5}), (Sizes{4, 5}));
}

// Random expressions: simplifying keeps the value, the text reads back, the bounds are true.
class RandomSizes : public testing::Test {
 protected:
  int64_t below(int64_t end) { return static_cast<int64_t>(random_() % end); }

  std::array<int64_t, 3> values() { return {2 + below(9), 2 + below(9), 2 + below(30)}; }

  Size expression(int depth) {
    if (depth == 0 || below(5) == 0)
      return below(3) ? Size::symbol(static_cast<int>(below(3))) : Size(below(9) - 3);
    Size a = expression(depth - 1), b = expression(depth - 1);
    switch (below(7)) {
      case 0: return a - b;
      case 1: return min(a, b);
      case 2: return max(a, b);
      case 3: return a * b;
      case 4: return divide(a, b, floor_div);
      case 5: return divide(a, b, modulo);
      default: return a + b;
    }
  }

  // Divisors that may be zero are left out: what such an expression means is nobody's business.
  Size divide(const Size& a, const Size& b, Size (*operation)(const Size&, const Size&)) {
    Bounds range = bounds(b);
    if (range.low <= 0 && range.high >= 0) return a;
    Size result = operation(a, b);
    for (int i = 0; i < 5; ++i) {
      std::array<int64_t, 3> at = values();
      EXPECT_EQ(result.evaluate(at), operation(a.evaluate(at), b.evaluate(at)).known())
          << a.str() << " by " << b.str();
    }
    return result;
  }

  std::mt19937 random_{17};
};

TEST_F(RandomSizes, KeepTheirValue) {
  for (int i = 0; i < 1000; ++i) {
    Size a = expression(3), b = expression(2);
    std::array<int64_t, 3> at = values();
    int64_t x = a.evaluate(at), y = b.evaluate(at);
    EXPECT_EQ((a + b).evaluate(at), x + y);
    EXPECT_EQ((a - b).evaluate(at), x - y);
    EXPECT_EQ((a * b).evaluate(at), x * y);
    EXPECT_EQ(min(a, b).evaluate(at), std::min(x, y)) << a.str() << " and " << b.str();
    EXPECT_EQ(max(a, b).evaluate(at), std::max(x, y)) << a.str() << " and " << b.str();
  }
}

TEST_F(RandomSizes, ReadBackAsThemselves) {
  for (int i = 0; i < 1000; ++i) {
    Size size = expression(4);
    std::optional<Size> again = Size::parse(size.str());
    ASSERT_TRUE(again) << size.str();
    EXPECT_EQ(*again, size);
    EXPECT_EQ(again->str(), size.str());
  }
}

TEST_F(RandomSizes, StayWithinTheirBounds) {
  for (int i = 0; i < 1000; ++i) {
    Size size = expression(4);
    Bounds range = bounds(size);
    int64_t value = size.evaluate(values());
    EXPECT_LE(range.low, value) << size.str();
    EXPECT_GE(range.high, value) << size.str();
  }
}

}  // namespace
}  // namespace smelt
