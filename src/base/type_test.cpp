#include "base/type.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/reader.h"

namespace smelt {
namespace {

TensorType read(std::string_view text) {
  Reader reader(text);
  TensorType type = read_type(reader);
  EXPECT_TRUE(reader.at_end()) << text;
  return type;
}

TEST(Device, PrintsAndParses) {
  for (const char* text : {"cpu", "cuda", "cuda:0", "cuda:7", "meta", "privateuseone:1"}) {
    std::optional<Device> device = parse_device(text);
    ASSERT_TRUE(device) << text;
    EXPECT_EQ(device->str(), text);
  }
  EXPECT_EQ(parse_device("cuda:1"), (Device{1, 1}));
  for (const char* wrong : {"", "gpu", "cuda:", "cuda:x", "cuda:128", "cuda:0x"})
    EXPECT_FALSE(parse_device(wrong)) << wrong;
}

TEST(TensorType, PrintsAndParses) {
  for (const char* text :
       {"f32[]", "f32[2, s0]", "f32[2, 3]{1, 2}", "i64[s0, 4]{4*s1, s1}@3 cuda:0",
        "c64[0, 5]{7, 1} conj neg", "f64[] number", "b8[2] cpu:0", "f32[4]@s0+1"}) {
    EXPECT_EQ(read(text).str(), text);
  }
  EXPECT_EQ(read("f32[0, 3, 1]").strides, (Sizes{3, 1, 1}));
  EXPECT_EQ(read("f32[s1, s0, 3]").strides, (Sizes{3 * Size::symbol(0), 3, 1}));
  EXPECT_THROW(read("float[2]"), Error);
  EXPECT_THROW(read("f32 2]"), Error);
}

TEST(TensorType, ComparesAllOfIt) {
  EXPECT_EQ(read("f32[2, 3]"), read("f32[2, 3]{3, 1}"));
  EXPECT_NE(read("f32[2, 3]"), read("f32[2, 3]{1, 2}"));
  EXPECT_NE(read("f32[2]"), read("f32[2] cuda"));
  EXPECT_NE(read("f32[]"), read("f32[] number"));
  EXPECT_EQ(read("f32[2, s0]").numel(), 2 * Size::symbol(0));
}

}  // namespace
}  // namespace smelt
