#include "loops/index.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "base/error.h"
#include "base/reader.h"

namespace smelt::loops {
namespace {

const Index i0 = Index::dim(0), i1 = Index::dim(1), i2 = Index::dim(2);
const Size s0 = Size::symbol(0), s1 = Size::symbol(1);

int64_t evaluate(const Index& index, std::span<const int64_t> at,
                 std::span<const int64_t> symbols) {
  int64_t sum = index.constant().evaluate(symbols);
  for (const Term& term : index.terms()) {
    int64_t atom = 0;
    if (term.atom.kind == Atom::Kind::dim) {
      atom = at[term.atom.id];
    } else {
      Size inner = evaluate(*term.atom.inner, at, symbols);
      Size divisor = term.atom.divisor.evaluate(symbols);
      atom = term.atom.kind == Atom::Kind::quotient ? floor_div(inner, divisor).known()
                                                    : modulo(inner, divisor).known();
    }
    sum += term.stride.evaluate(symbols) * atom;
  }
  return sum;
}

void each_point(std::span<const int64_t> extents,
                const std::function<void(std::span<const int64_t>)>& visit) {
  int64_t points = 1;
  for (int64_t extent : extents) points *= extent;
  std::vector<int64_t> at(extents.size());
  for (int64_t flat = 0; flat < points; ++flat) {
    int64_t rest = flat;
    for (size_t d = extents.size(); d-- > 0; rest /= extents[d]) at[d] = rest % extents[d];
    visit(at);
  }
}

std::string quotient_text(const Index& index, const Size& divisor, const Sizes& extents) {
  return quotient(index, divisor, {extents}).str();
}
std::string remainder_text(const Index& index, const Size& divisor, const Sizes& extents) {
  return remainder(index, divisor, {extents}).str();
}

TEST(Index, KeepsSumsInOneForm) {
  EXPECT_EQ((i1 * 4 + 3 + i0 + i1).str(), "3 + i0 + 5*i1");
  EXPECT_EQ((i1 - i1).str(), "0");
  EXPECT_EQ((i0 * 2 - i1 * 3 - Index(1)).str(), "-1 + 2*i0 - 3*i1");
  EXPECT_EQ(i0 + i1, i1 + i0);
  EXPECT_EQ((Index::value(7) + i0 * s0 + Index(s0 * 2 + 1)).str(), "(2*s0+1) + s0*i0 + v7");
}

TEST(Index, KnowsStrides) {
  Index index = i0 * 16 + i1 + quotient(i2, 5, {}) * 2;
  EXPECT_EQ(index.stride_of(0), Size(16));
  EXPECT_EQ(index.stride_of(1), Size(1));
  EXPECT_EQ(index.stride_of(2), std::nullopt);
  EXPECT_EQ(index.stride_of(3), Size(0));
  EXPECT_FALSE(index.is_affine());
  EXPECT_TRUE(index.uses_dim(2));
  EXPECT_FALSE(index.uses_values());
  EXPECT_TRUE(remainder(Index::value(2), 4, {}).uses_values());
}

TEST(Index, KnowsRanges) {
  Sizes extents = {4, 10, s0};
  auto range = (i0 * -2 + i1 + 1).range({extents});
  ASSERT_TRUE(range);
  EXPECT_EQ(range->low, -5);
  EXPECT_EQ(range->high, 10);
  EXPECT_FALSE(i2.range({extents}));
  EXPECT_FALSE(Index::value(0).range({extents}));
  EXPECT_EQ(i2.size_range({extents})->high, s0 - 1);
  EXPECT_TRUE((i0 * s0 + i2).lies_below(s0 * 4, {extents}));
  EXPECT_FALSE((i0 * s0 + i2 + 1).lies_below(s0 * 4, {extents}));
}

TEST(Index, DividesWhatTheExtentsAllow) {
  EXPECT_EQ(quotient_text(i0 * 4 + i1, 4, {9, 4}), "i0");
  EXPECT_EQ(remainder_text(i0 * 4 + i1, 4, {9, 4}), "i1");
  EXPECT_EQ(remainder_text(i0 * 6 + i1 * 2 + i2, 6, {9, 3, 2}), "2*i1 + i2");
  EXPECT_EQ(quotient_text(i0 * 6 + i1 * 2 + i2, 4, {9, 3, 2}), "((3*i0 + i1) // 2)");
  EXPECT_EQ(quotient_text(i0, 1, {9}), "i0");
  EXPECT_EQ(remainder_text(i0, 1, {9}), "0");
  EXPECT_EQ(quotient_text(i0, 9, {9}), "0");
  EXPECT_EQ(remainder_text(i0 + 9, 9, {9}), "i0");
  EXPECT_EQ(quotient_text(i0 - Index(1), 9, {9}), "-1 + ((8 + i0) // 9)");
  EXPECT_EQ(quotient_text(i0, 0, {0}), "0");
}

TEST(Index, NestsDivisions) {
  Sizes extents = {100};
  Index third = quotient(i0, 3, {extents});
  EXPECT_EQ(quotient_text(third, 4, extents), "(i0 // 12)");
  EXPECT_EQ(quotient_text(third + 5, 4, extents), "1 + ((3 + i0) // 12)");
  EXPECT_EQ(remainder_text(third, 4, extents), "((i0 // 3) % 4)");
  Index twelfth = remainder(i0, 12, {extents});
  EXPECT_EQ(quotient_text(twelfth, 3, extents), "((i0 // 3) % 4)");
  EXPECT_EQ(remainder_text(twelfth, 3, extents), "(i0 % 3)");
  EXPECT_EQ(remainder_text(twelfth + 5, 4, extents), "((1 + i0) % 4)");
}

TEST(Index, DividesSymbolicStrides) {
  EXPECT_EQ(quotient_text(i0 * s0 + i1, s0, {9, s0}), "i0");
  EXPECT_EQ(remainder_text(i0 * s0 + i1, s0, {9, s0}), "i1");
  EXPECT_EQ(quotient_text(i0 * (s0 * s1) + i1 * s1 + i2, s1, {9, s0, s1}), "s0*i0 + i1");
  EXPECT_EQ(remainder_text(i0 * (s0 * s1) + i1 * s1 + i2, s0 * s1, {9, s0, s1}), "s1*i1 + i2");
  EXPECT_EQ(quotient_text(i0 * s0 + i1, s0 * 4, {16, s0}), "(i0 // 4)");
  EXPECT_EQ(quotient_text(i0, s0, {s0 * 3}), "(i0 // s0)");
}

TEST(Index, JoinsWhatWasTakenApart) {
  Sizes extents = {120};
  Sizes sizes = {2, 3, 4, 5};
  EXPECT_EQ(ravel(unravel(i0, sizes, {extents}), sizes), i0);
  sizes = {10, 12};
  Sizes other = {6, 20};
  Index there = ravel(unravel(i0, sizes, {extents}), sizes);
  EXPECT_EQ(ravel(unravel(there, other, {extents}), other), i0);
  Index low = remainder(i0, 3, {extents}),
        high = remainder(quotient(i0, 3, {extents}), 4, {extents});
  EXPECT_EQ((high * 3 + low).str(), "(i0 % 12)");
}

TEST(Index, ReshapesContiguousMemoryToItself) {
  Sizes from = {4, 6, 10}, to = {24, 2, 5};
  Indices at = {i0, i1, i2};
  Indices there = unravel(ravel(at, from), to, {from});
  EXPECT_EQ(there[0].str(), "6*i0 + i1");
  EXPECT_EQ(there[1].str(), "(i2 // 5)");
  EXPECT_EQ(there[2].str(), "(i2 % 5)");
  EXPECT_EQ(ravel(there, to), ravel(at, from));
  Sizes symbolic = {s0, 6, s1}, merged = {s0 * 6, s1};
  there = unravel(ravel(at, symbolic), merged, {symbolic});
  EXPECT_EQ(there[0].str(), "6*i0 + i1");
  EXPECT_EQ(there[1].str(), "i2");
}

TEST(Index, SubstitutesDimsAndValues) {
  Index index = i0 * 4 + quotient(i1, 3, {}) + Index::value(2);
  Indices dims = {i1, i0 * 3 + i2};
  Sizes extents = {5, 6, 3};
  EXPECT_EQ(index.substitute(dims, {extents}).str(), "i0 + 4*i1 + v2");
  std::vector<int32_t> values = {0, 1, 9};
  EXPECT_EQ(index.renumber_values(values).str(), "4*i0 + (i1 // 3) + v9");
  EXPECT_THROW(Index::dim(2).substitute(dims), InternalError);
}

TEST(Index, ReadsItsText) {
  for (const char* text :
       {"0", "-3", "i0", "-i0 + 4*i1", "3 + 16*i0 + i1 + 4*(i2 // 5) + v7", "((2 + i0) % (s0+1))",
        "(2*s0*s1) + (s0//2)*i0", "min(s0, s1)*i0", "(((i0 // 3) + i1) % 4)"}) {
    Reader reader(text);
    Index index = Index::read(reader);
    std::string written = index.str();
    Reader again(written);
    EXPECT_EQ(Index::read(again), index) << text;
    EXPECT_TRUE(reader.at_end()) << text;
  }
  for (const char* text : {"", "i", "x0", "i0*i1", "(i0 // 0)", "(i0 // i1)", "(i0"}) {
    Reader reader(text);
    EXPECT_THROW(Index::read(reader), Error) << text;
  }
}

// Random sums, quotients and remainders of each other; the simplified form has the value of the
// operation at every point.
class RandomIndices : public testing::TestWithParam<bool> {};

TEST_P(RandomIndices, HaveTheValueOfTheOperation) {
  const std::vector<int64_t> choices = {1, 2, 3, 4, 5, 6, 8, 12};
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    std::mt19937_64 random(seed);
    auto below = [&](int64_t bound) { return static_cast<int64_t>(random() % bound); };
    std::vector<int64_t> extents, symbols;
    Sizes sizes;
    for (int d = 0; d < 3; ++d) {
      extents.push_back(choices[below(8)]);
      bool symbol = GetParam() && extents.back() > 1 && below(2) == 0;
      if (symbol) symbols.push_back(extents.back());
      sizes.push_back(symbol ? Size::symbol(static_cast<int>(symbols.size()) - 1)
                             : Size(extents.back()));
    }
    auto size = [&] { return below(3) == 0 ? sizes[below(3)] : Size(choices[below(8)]); };
    std::vector<Index> made = {i0, i1, i2, ravel(Indices{i0, i1, i2}, sizes)};
    for (int step = 0; step < 6; ++step) {
      const Index a = made[below(static_cast<int64_t>(made.size()))];
      const Index b = made[below(static_cast<int64_t>(made.size()))];
      Size factor = below(5) == 0 ? size() * -1 : size(), divisor = size() * size();
      Size size_added = size();
      int64_t operation = below(5);
      Index result = operation == 0   ? a + b * factor
                     : operation == 1 ? a * factor + Index(size_added)
                     : operation <= 3 ? quotient(a, divisor, {sizes})
                                      : remainder(a, divisor, {sizes});
      each_point(extents, [&](std::span<const int64_t> at) {
        Size x = evaluate(a, at, symbols), y = evaluate(b, at, symbols);
        Size d = divisor.evaluate(symbols), f = factor.evaluate(symbols);
        Size added = size_added.evaluate(symbols);
        int64_t value = evaluate(result, at, symbols);
        Size expected = operation == 0   ? x + y * f
                        : operation == 1 ? x * f + added
                        : operation <= 3 ? floor_div(x, d)
                                         : modulo(x, d);
        ASSERT_EQ(value, expected.known());
        auto range = result.size_range({sizes});
        if (!range) return;
        ASSERT_LE(range->low.evaluate(symbols), value) << result.str();
        ASSERT_GE(range->high.evaluate(symbols), value) << result.str();
      });
      if (HasFatalFailure()) {
        FAIL() << "seed " << seed << ": " << a.str() << ", " << b.str() << ", " << divisor.str()
               << " gave " << result.str();
      }
      std::string text = result.str();
      Reader reader(text);
      ASSERT_EQ(Index::read(reader), result) << text;
      made.push_back(result);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RandomIndices, testing::Bool(),
                         [](const auto& info) { return info.param ? "symbolic" : "known"; });

}  // namespace
}  // namespace smelt::loops
