#include "base/dtype.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace smelt {
namespace {

// What torch 2.13's torch.promote_types answers for each row with the dtypes in the order of
// dtype.def; '-' is a refusal.
constexpr const char* kPromotions = R"(
u8:         u8 i16 i16 i32 i64 f16 f32 f64 c32 c64 c128 u8 bf16 - - - - - - -
i8:         i16 i8 i16 i32 i64 f16 f32 f64 c32 c64 c128 i8 bf16 - - - - - - -
i16:        i16 i16 i16 i32 i64 f16 f32 f64 c32 c64 c128 i16 bf16 - - - - - - -
i32:        i32 i32 i32 i32 i64 f16 f32 f64 c32 c64 c128 i32 bf16 - - - - - - -
i64:        i64 i64 i64 i64 i64 f16 f32 f64 c32 c64 c128 i64 bf16 - - - - - - -
f16:        f16 f16 f16 f16 f16 f16 f32 f64 c32 c64 c128 f16 f32 - - - - f16 f16 f16
f32:        f32 f32 f32 f32 f32 f32 f32 f64 c64 c64 c128 f32 f32 - - - - f32 f32 f32
f64:        f64 f64 f64 f64 f64 f64 f64 f64 c128 c128 c128 f64 f64 - - - - f64 f64 f64
c32:        c32 c32 c32 c32 c32 c32 c64 c128 c32 c64 c128 c32 c64 - - - - - - -
c64:        c64 c64 c64 c64 c64 c64 c64 c128 c64 c64 c128 c64 c64 - - - - - - -
c128:       c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 - - - - - - -
b8:         u8 i8 i16 i32 i64 f16 f32 f64 c32 c64 c128 b8 bf16 - - - - - - -
bf16:       bf16 bf16 bf16 bf16 bf16 f32 f32 f64 c64 c64 c128 bf16 bf16 - - - - bf16 bf16 bf16
f8e5m2:     - - - - - - - - - - - - - f8e5m2 - - - - - -
f8e4m3fn:   - - - - - - - - - - - - - - f8e4m3fn - - - - -
f8e5m2fnuz: - - - - - - - - - - - - - - - f8e5m2fnuz - - - -
f8e4m3fnuz: - - - - - - - - - - - - - - - - f8e4m3fnuz - - -
u16:        - - - - - f16 f32 f64 - - - - bf16 - - - - u16 - -
u32:        - - - - - f16 f32 f64 - - - - bf16 - - - - - u32 -
u64:        - - - - - f16 f32 f64 - - - - bf16 - - - - - - u64
)";

TEST(DType, PromotesAsTorch) {
  std::istringstream lines(kPromotions);
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    if (!(words >> word)) continue;
    word.pop_back();
    std::optional<DType> row = parse_dtype(word);
    ASSERT_TRUE(row) << word;
    EXPECT_EQ(static_cast<int>(*row), rows++);
    int column = 0;
    for (; words >> word; ++column) {
      DType other = static_cast<DType>(column);
      std::optional<DType> promoted = promote(*row, other);
      EXPECT_EQ(promoted ? name_of(*promoted) : "-", word)
          << name_of(*row) << " with " << name_of(other);
    }
    EXPECT_EQ(column, 20);
  }
  EXPECT_EQ(rows, 20);
}

TEST(DType, KnowsNamesAndSizes) {
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(parse_dtype("c128"), DType::c128);
  EXPECT_FALSE(parse_dtype("float"));
  EXPECT_EQ(bytes_of(DType::f8e5m2), 1);
  EXPECT_EQ(bytes_of(DType::c128), 16);
  EXPECT_TRUE(is_integral(DType::u64));
  EXPECT_EQ(category_of(DType::b8), Category::boolean);
}

TEST(DType, KnowsItsRelatives) {
  EXPECT_EQ(real_of(DType::c64), DType::f32);
  EXPECT_EQ(real_of(DType::i32), DType::i32);
  EXPECT_EQ(complex_of(DType::bf16), DType::c64);
  EXPECT_EQ(complex_of(DType::c32), DType::c32);
  EXPECT_FALSE(complex_of(DType::i64));
  EXPECT_EQ(accumulate_of(DType::bf16), DType::f32);
  EXPECT_EQ(accumulate_of(DType::f64), DType::f64);
  EXPECT_EQ(accumulate_of(DType::i8), DType::i8);
}

}  // namespace
}  // namespace smelt
