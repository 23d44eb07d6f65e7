#include "base/size_code.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace smelt {
namespace {

Size size(const char* text) { return *Size::parse(text); }

TEST(SizeCode, GivesWhatEachSizeEvaluatesTo) {
  const Sizes sizes = {size("7"),           size("s0"),           size("s0*s1+3"),
                       size("2*s0*s0-s1"),  size("(s0//3)*s1"),   size("(s0-9)%4"),
                       size("min(s0, s1)"), size("max(s0*2, 5)"), size("((s0+s1)//s1)%3")};
  SizeCode code;
  std::vector<int32_t> places;
  for (const Size& one : sizes) places.push_back(code.place_of(one));
  std::vector<int64_t> values;
  for (const std::vector<int64_t>& symbols :
       {std::vector<int64_t>{2, 5}, std::vector<int64_t>{64, 3}, std::vector<int64_t>{7, 1000}}) {
    code.run(symbols, values);
    for (size_t i = 0; i < sizes.size(); ++i)
      EXPECT_EQ(values[places[i]], sizes[i].evaluate(symbols)) << sizes[i].str();
  }
}

TEST(SizeCode, ComputesOnceWhatSizesHaveInCommon) {
  SizeCode code;
  const int32_t first = code.place_of(size("s0*s1*64"));
  const size_t before = code.places();
  EXPECT_EQ(code.place_of(size("s0*s1*64")), first);
  EXPECT_EQ(code.places(), before);
  code.place_of(size("s0*s1*64+s0"));
  EXPECT_EQ(code.places(), before + 1);
}

TEST(SizeCode, ChecksWhatHasNoValue) {
  SizeCode by_zero, without;
  by_zero.place_of(size("8//s0"));
  without.place_of(size("s3"));
  std::vector<int64_t> values;
  const std::vector<int64_t> zero = {0};
  EXPECT_THROW(by_zero.run(zero, values), InternalError);
  EXPECT_THROW(without.run(zero, values), InternalError);
}

}  // namespace
}  // namespace smelt
