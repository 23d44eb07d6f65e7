#include "base/arg.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace smelt {
namespace {

TEST(Arg, ReadsBackAsItself) {
  const Size s0 = Size::symbol(0);
  const double infinity = std::numeric_limits<double>::infinity();
  const std::pair<Arg, const char*> cases[] = {
      {None{}, "none"},
      {Ref{3}, "%3"},
      {1, "1"},
      {-1, "-1"},
      {std::numeric_limits<int64_t>::max(), "9223372036854775807"},
      {std::numeric_limits<int64_t>::min(), "-9223372036854775808"},
      {2 * s0 + 1, "2*s0+1"},
      {min(s0, 8), "min(s0, 8)"},
      {1.0, "1.0"},
      {0.1, "0.1"},
      {-0.0, "-0.0"},
      {1e30, "1e+30"},
      {5e-324, "5e-324"},
      {infinity, "inf"},
      {-infinity, "-inf"},
      {std::nan(""), "nan"},
      {true, "true"},
      {false, "false"},
      {std::complex<double>(1.5, -0.0), "complex(1.5, -0.0)"},
      {std::complex<double>(-infinity, 2), "complex(-inf, 2.0)"},
      {std::string("sum\n\"\\\x01 é"), "\"sum\\n\\\"\\\\\\x01 é\""},
      {"", "\"\""},
      {DType::f32, "f32"},
      {DType::b8, "b8"},
      {Device{}, "cpu"},
      {Device{1, 0}, "cuda:0"},
      {Layout{1}, "layout sparse_coo"},
      {MemoryFormat{2}, "format channels_last"},
      {Opaque{0}, "opaque 0"},
      {ArgList{}, "[]"},
      {ArgList{Ref{1}, None{}, ArgList{1, 1.0, true}}, "[%1, none, [1, 1.0, true]]"},
  };
  for (const auto& [arg, text] : cases) {
    EXPECT_EQ(str(arg), text);
    std::optional<Arg> again = parse_arg(text);
    ASSERT_TRUE(again) << text;
    EXPECT_EQ(again->index(), arg.index()) << text;
    EXPECT_TRUE(*again == arg) << text;
  }
}

TEST(Arg, RefusesOtherText) {
  for (const char* wrong : {"", "%", "[1", "1.0.0", "\"open", "\"\\q\"", "layout nothing", "f31",
                            "1 2", "complex(1, 2.0)", "none none"}) {
    EXPECT_FALSE(parse_arg(wrong)) << wrong;
  }
}

TEST(Arg, IsEqualOnlyToTheSame) {
  EXPECT_FALSE(Arg(1) == Arg(1.0));
  EXPECT_FALSE(Arg(1) == Arg(true));
  EXPECT_FALSE(Arg(0.0) == Arg(-0.0));
  EXPECT_TRUE(Arg(std::nan("1")) == Arg(std::nan("2")));
  EXPECT_FALSE(Arg(ArgList{0.0}) == Arg(ArgList{-0.0}));
}

TEST(Arg, VisitsWhatIsInside) {
  Arg arg = ArgList{Ref{1}, ArgList{Ref{2}, 5}, Size::symbol(0)};
  each_ref(arg, [](Ref& ref) { ref.id += 10; });
  EXPECT_EQ(str(arg), "[%11, [%12, 5], s0]");
  std::string seen;
  each_ref(std::as_const(arg), [&](Ref ref) { seen += std::to_string(ref.id) + " "; });
  each_size(arg, [&](const Size& size) { seen += size.str() + " "; });
  EXPECT_EQ(seen, "11 12 5 s0 ");
}

}  // namespace
}  // namespace smelt
