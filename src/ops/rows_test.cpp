#include "ops/rows.h"

#include <gtest/gtest.h>

#include "ops/rules/layout.h"
#include "ops/rules/not_literal.h"

namespace smelt {
namespace {

// A call written down: its arguments, where a TensorType stands for a tensor.
class Call {
 public:
  explicit Call(SymbolTable& symbols) : symbols_(symbols) {}

  Call& tensor(Sizes sizes) { return tensor(fresh(DType::f32, Device{}, std::move(sizes))); }
  Call& tensor(TensorType type) {
    args_.emplace_back(add(std::move(type)));
    return *this;
  }
  Call& tensors(std::vector<Sizes> list) {
    ArgList refs;
    for (Sizes& sizes : list) refs.emplace_back(add(fresh(DType::f32, Device{}, std::move(sizes))));
    args_.emplace_back(std::move(refs));
    return *this;
  }
  Call& sizes(const Sizes& sizes) {
    ArgList list;
    for (const Size& size : sizes) list.emplace_back(size);
    args_.emplace_back(std::move(list));
    return *this;
  }
  Call& arg(Arg arg) {
    args_.push_back(std::move(arg));
    return *this;
  }

  // "f32[2, s0] f32[3]", or the refusal.
  std::string operator()(std::string_view op) {
    const OpRow* row = find_row(OpName(op));
    if (row == nullptr) return "no row";
    ShapeQuery query(args_, types_, symbols_, DType::f32);
    if (Decision made = row->shape(query); !made) return made.reason();
    std::string text;
    for (const auto& type : query.results) {
      if (!text.empty()) text += " ";
      text += type ? type->str() : "none";
    }
    return text;
  }

 private:
  Ref add(TensorType type) {
    types_.push_back(std::move(type));
    return Ref{static_cast<int32_t>(types_.size() - 1)};
  }

  SymbolTable& symbols_;
  std::vector<Arg> args_;
  std::vector<TensorType> types_;
};

class Rows : public ::testing::Test {
 protected:
  Call call() { return Call(symbols); }
  std::string guards() {
    std::string text;
    for (const Guard& guard : symbols.guards()) text += guard.str() + "; ";
    return text;
  }

  SymbolTable symbols;
  Size s0 = symbols.add(8), s1 = symbols.add(5);
};

TEST_F(Rows, AreFoundByName) {
  EXPECT_NE(find_row(OpName("aten::mm")), nullptr);
  EXPECT_EQ(find_row(OpName("aten::no_such_op")), nullptr);
  EXPECT_GT(all_rows().size(), 500u);
}

TEST_F(Rows, BroadcastKeepsSymbols) {
  EXPECT_EQ(call().tensor({s0, 4}).tensor({4}).arg(Size(1))("aten::add.Tensor"), "f32[s0, 4]");
  EXPECT_EQ(call().tensor({s0, 1}).tensor({1, s1}).arg(Size(1))("aten::add.Tensor"), "f32[s0, s1]");
  EXPECT_EQ(call().tensor({s0, s1}).arg(2.0)("aten::mul.Tensor"), "f32[s0, s1]");
  EXPECT_EQ(call().tensor({s0, s1}).tensor({s0, s1})("aten::lt.Tensor"), "b8[s0, s1]");
  EXPECT_EQ(guards(), "");
}

TEST_F(Rows, BroadcastOfDifferentSymbolsGuards) {
  const Size s2 = symbols.add(8);
  EXPECT_EQ(call().tensor({s0, 4}).tensor({s2, 4})("aten::maximum"), "f32[s0, 4]");
  EXPECT_EQ(guards(), "s0 == s2; ");
  EXPECT_EQ(call().tensor({s0}).tensor({s1})("aten::maximum"),
            "the operands' sizes do not broadcast");
}

TEST_F(Rows, ElementwiseKeepsTheLayout) {
  const TensorType transposed = fresh(DType::f32, Device{}, {4, s0}, {1, 4});
  EXPECT_EQ(call().tensor(transposed)("aten::exp"), "f32[4, s0]{1, 4}");
  EXPECT_EQ(call().tensor(transposed).tensor({4, s0}).arg(Size(1))("aten::add.Tensor"),
            "f32[4, s0]{1, 4}");
  EXPECT_EQ(call().tensor(transposed).arg(None{})("aten::clone"), "f32[4, s0]{1, 4}");
  EXPECT_EQ(call().tensor(transposed).arg(kContiguous)("aten::clone"), "f32[4, s0]");
  EXPECT_EQ(guards(), "");
}

TEST_F(Rows, PromotionFollowsRank) {
  const TensorType numbers = fresh(DType::i32, Device{}, {s0});
  const TensorType scalar = fresh(DType::f64, Device{}, {});
  EXPECT_EQ(call().tensor(numbers).arg(Size(3))("aten::mul.Tensor"), "i32[s0]");
  EXPECT_EQ(call().tensor(numbers).arg(0.5)("aten::mul.Tensor"), "f32[s0]");
  EXPECT_EQ(call().tensor(numbers).tensor(scalar)("aten::mul.Tensor"), "f64[s0]");
  EXPECT_EQ(call().tensor({s0}).tensor(scalar)("aten::mul.Tensor"), "f32[s0]");
  EXPECT_EQ(call().tensor(numbers).tensor(numbers)("aten::div.Tensor"), "f32[s0]");
}

TEST_F(Rows, NumbersThatAreNotKnownCountAsThoseThatAre) {
  const TensorType integers = fresh(DType::i32, Device{}, {s0});
  TensorType real = fresh(DType::f64, Device{}, {}), integer = fresh(DType::i64, Device{}, {});
  real.wrapped_number = integer.wrapped_number = true;
  EXPECT_EQ(call().tensor(integers).tensor(integer)("aten::mul.Tensor"), "i32[s0]");
  EXPECT_EQ(call().tensor(integers).tensor(real)("aten::mul.Tensor"), "f32[s0]");
  EXPECT_EQ(call().tensor(fresh(DType::f16, Device{}, {})).tensor(real)("aten::mul.Scalar"),
            "f16[]");
  EXPECT_EQ(call().tensor({s0}).tensor({s0}).tensor(real)("aten::add.Tensor"), "f32[s0]");
  EXPECT_EQ(call().tensor(integers).tensor(integers).tensor(real)("aten::add.Tensor"),
            "alpha is not of the result's category");
  EXPECT_EQ(call().tensor(integers).tensor(real).arg(None{})("aten::clamp"), "f32[s0]");
  EXPECT_EQ(call().sizes({2}).tensor(integer).arg(None{}).arg(None{}).arg(None{}).arg(None{})(
                "aten::full"),
            "i64[2]");
  EXPECT_EQ(
      call().sizes({2}).tensor(real).arg(None{}).arg(None{}).arg(None{}).arg(None{})("aten::full"),
      "f32[2]");
  // A rule that needs the value says so to whoever asks.
  EXPECT_THROW(call().tensor({s0}).tensor(real)("aten::celu"), NotLiteral);
}

TEST_F(Rows, ViewsKeepSymbols) {
  EXPECT_EQ(call().tensor({s0, 12}).sizes({s0, 3, 4})("aten::view"), "f32[s0, 3, 4]");
  EXPECT_EQ(call().tensor({s0, 12}).sizes({-1, 6})("aten::view"), "f32[2*s0, 6]");
  EXPECT_EQ(call().tensor({s0, s1, 4}).sizes({s0 * s1, -1})("aten::view"), "f32[s0*s1, 4]");
  EXPECT_EQ(call().tensor({1, 4}).sizes({s0, -1}).arg(false)("aten::expand"), "f32[s0, 4]{0, 1}");
  EXPECT_EQ(call().tensor({s0, 4})("aten::t"), "f32[4, s0]{1, 4}");
  EXPECT_EQ(guards(), "");
}

TEST_F(Rows, SlicesCountFromBothEnds) {
  EXPECT_EQ(call().tensor({4, s0}).arg(Size(1)).arg(Size(1)).arg(None{}).arg(Size(1))(
                "aten::slice.Tensor"),
            "f32[4, s0-1]{s0, 1}@1");
  EXPECT_EQ(call().tensor({4, s0}).arg(Size(1)).arg(None{}).arg(Size(-1)).arg(Size(1))(
                "aten::slice.Tensor"),
            "f32[4, s0-1]{s0, 1}");
  EXPECT_EQ(guards(), "");
  EXPECT_EQ(
      call().tensor({s0}).arg(Size(0)).arg(Size(0)).arg(Size(6)).arg(Size(1))("aten::slice.Tensor"),
      "f32[6]");
  EXPECT_EQ(guards(), "s0 > 6; ");
}

TEST_F(Rows, ConcatenationAddsSizes) {
  EXPECT_EQ(call().tensors({{s0, 3}, {s1, 3}}).arg(Size(0))("aten::cat"), "f32[s0+s1, 3]");
  EXPECT_EQ(call().tensors({{s0, 3}, {s0, 3}}).arg(Size(1))("aten::cat"), "f32[s0, 6]");
  EXPECT_EQ(call().tensors({{s0}, {s0}}).arg(Size(0))("aten::stack"), "f32[2, s0]");
  EXPECT_EQ(guards(), "");
}

TEST_F(Rows, ConvolutionsComputeSizes) {
  const auto conv = [&](TensorType input) {
    return call()
        .tensor(std::move(input))
        .tensor({16, 3, 3, 3})
        .arg(None{})
        .sizes({2, 2})
        .sizes({1, 1})
        .sizes({1, 1})
        .arg(false)
        .sizes({0, 0})
        .arg(Size(1))("aten::convolution");
  };
  EXPECT_EQ(conv(fresh(DType::f32, Device{}, {s0, 3, 32, 32})), "f32[s0, 16, 16, 16]");
  const Sizes sizes = {s0, 3, 32, 32};
  EXPECT_EQ(conv(fresh(DType::f32, Device{}, sizes, *format_strides(sizes, kChannelsLast))),
            "f32[s0, 16, 16, 16]{4096, 1, 256, 16}");
  EXPECT_EQ(guards(), "");
  const Size side = symbols.add(32);
  EXPECT_EQ(conv(fresh(DType::f32, Device{}, {s0, 3, side, 32})), "f32[s0, 16, ((s2+1)//2), 16]");
}

TEST_F(Rows, ReductionsAndProducts) {
  EXPECT_EQ(call().tensor({s0, s1, 4}).sizes({1}).arg(true).arg(None{})("aten::sum.dim_IntList"),
            "f32[s0, 1, 4]");
  EXPECT_EQ(call().tensor({s0, 4}).tensor({4, s1})("aten::mm"), "f32[s0, s1]");
  EXPECT_EQ(call().tensor({s0, 4}).tensor({3, s1})("aten::mm"), "the matrices do not fit");
  EXPECT_EQ(call().tensor({s0, s1, 4}).arg(Size(-1)).arg(false)("aten::_softmax"),
            "f32[s0, s1, 4]");
  EXPECT_EQ(call().tensor({3, 0, 1, 0}).arg(Size(0)).arg(None{})("aten::_safe_softmax"),
            "f32[3, 0, 1, 0]");
  EXPECT_EQ(call().tensor({s0, 6}).sizes({6}).arg(None{}).arg(None{}).arg(1e-5)(
                "aten::native_layer_norm"),
            "f32[s0, 6] f32[s0, 1] f32[s0, 1]");
  EXPECT_EQ(guards(), "");
}

TEST_F(Rows, IndicesBroadcast) {
  const TensorType indices = fresh(DType::i64, Device{}, {s1});
  EXPECT_EQ(call()
                .tensor({100, 8})
                .tensor(fresh(DType::i64, Device{}, {s0, s1}))
                .arg(Size(-1))
                .arg(false)
                .arg(false)("aten::embedding"),
            "f32[s0, s1, 8]");
  EXPECT_EQ(call().tensor({s0, 4}).arg(Size(0)).tensor(indices)("aten::index_select"),
            "f32[s1, 4]");
  EXPECT_EQ(guards(), "");
}

TEST_F(Rows, FactoriesTakeSymbols) {
  const auto options = [](Call& call) -> Call& {
    return call.arg(None{}).arg(None{}).arg(None{}).arg(None{});
  };
  Call zeros = call(), range = call(), full = call();
  EXPECT_EQ(options(zeros.sizes({s0, 2}))("aten::zeros"), "f32[s0, 2]");
  EXPECT_EQ(options(range.arg(s0))("aten::arange"), "i64[s0]");
  EXPECT_EQ(options(full.sizes({s0}).arg(true))("aten::full"), "b8[s0]");
  EXPECT_EQ(guards(), "");
}

TEST_F(Rows, SplitsSpecialiseTheirNumber) {
  EXPECT_EQ(call().tensor({s0, 4}).arg(Size(2)).arg(Size(1))("aten::split.Tensor"),
            "f32[s0, 2]{4, 1} f32[s0, 2]{4, 1}@2");
  EXPECT_EQ(guards(), "");
  EXPECT_EQ(call().tensor({s1}).arg(Size(3)).arg(Size(0))("aten::split.Tensor"),
            "f32[3] f32[s1-3]@3");
  EXPECT_NE(guards(), "");
}

}  // namespace
}  // namespace smelt
