// Rows of ops that only CUDA has: what PyTorch's kernels there give, asked without a device.
#include <gtest/gtest.h>

#include "ops/rows.h"
#include "ops/rules/cudnn_library.h"
#include "ops/rules/layout.h"
#include "ops/shapes/literal_results.h"

namespace smelt {
namespace {

constexpr Device kCuda{1, 0};

// The results of a call: "f16[2, 4] none".
class Call {
 public:
  Call& tensor(DType dtype, Sizes sizes) { return tensor(fresh(dtype, kCuda, std::move(sizes))); }
  Call& tensor(TensorType type) {
    types_.push_back(std::move(type));
    return arg(Arg(Ref{static_cast<int32_t>(types_.size() - 1)}));
  }
  Call& list(std::vector<TensorType> types) {
    ArgList refs;
    for (TensorType& type : types) {
      types_.push_back(std::move(type));
      refs.push_back(Arg(Ref{static_cast<int32_t>(types_.size() - 1)}));
    }
    return arg(Arg(std::move(refs)));
  }
  Call& arg(Arg arg) {
    args_.push_back(std::move(arg));
    return *this;
  }

  std::string operator()(std::string_view op) {
    const OpRow* row = find_row(OpName(op));
    if (row == nullptr) return "no row";
    ShapeQuery query(args_, types_, symbols_, DType::f32);
    if (Decision made = row->shape(query); !made) return made.reason();
    std::string text;
    for (const auto& type : query.results)
      text += (text.empty() ? "" : " ") + (type ? type->str() : "none");
    for (const Size& size : literal_results(OpName(op), query).value_or(Sizes{}))
      text += " " + size.str();
    return text;
  }

 private:
  SymbolTable symbols_;
  std::vector<Arg> args_;
  std::vector<TensorType> types_;
};

// [B, H, T, D] as a projection gives it: [B, T, H, D] in memory.
TensorType heads(DType dtype, int64_t b, int64_t h, int64_t t, int64_t d) {
  return fresh(dtype, kCuda, {b, h, t, d}, {t * h * d, d, h * d, 1});
}

Call attention(DType dtype) {
  Call call;
  for (const int64_t length : {16, 24, 24}) call.tensor(heads(dtype, 2, 4, length, 8));
  return call;
}

TEST(CudaRows, FlashAttention) {
  EXPECT_EQ(attention(DType::f16)
                .arg(Arg(0.0))
                .arg(Arg(true))
                .arg(Arg(false))
                .arg(Arg(None{}))("aten::_scaled_dot_product_flash_attention"),
            "f16[2, 4, 16, 8]{512, 8, 32, 1} cuda:0 f32[2, 4, 16] cuda:0 none none u64[2] cuda:0 "
            "u64[] cuda:0 f16[0] cuda:0 16 24");
}

TEST(CudaRows, EfficientAttention) {
  EXPECT_EQ(attention(DType::f32)
                .arg(Arg(None{}))
                .arg(Arg(true))
                .arg(Arg(0.0))
                .arg(Arg(false))
                .arg(Arg(None{}))("aten::_scaled_dot_product_efficient_attention"),
            "f32[2, 4, 16, 8]{512, 8, 32, 1} cuda:0 f32[2, 4, 32] cuda:0 i64[] cuda:0 i64[] "
            "cuda:0");
}

TEST(CudaRows, CudnnAttentionLaysItsResultOutAsTheQuery) {
  Call call;
  call.tensor(heads(DType::bf16, 2, 4, 16, 8)).tensor(heads(DType::bf16, 2, 4, 24, 8));
  call.tensor(heads(DType::bf16, 2, 4, 24, 16)).arg(Arg(None{})).arg(Arg(true)).arg(Arg(0.0));
  call.arg(Arg(false)).arg(Arg(false)).arg(Arg(None{}));
  EXPECT_EQ(call("aten::_scaled_dot_product_cudnn_attention"),
            "bf16[2, 4, 16, 16]{1024, 16, 64, 1} cuda:0 f32[2, 4, 16, 1] cuda:0 none none i64[] "
            "cuda:0 i64[] cuda:0 none 16 24");
}

TEST(CudaRows, BatchNormAsksCudnnForWhatItKeeps) {
  const auto before = cudnn_batch_norm_bytes;
  cudnn_batch_norm_bytes = [](const TensorType&) -> std::optional<int64_t> { return 48; };
  Call call;
  call.tensor(fresh(DType::f16, kCuda, {2, 4, 3, 3}, {36, 1, 12, 4}));
  for (int i = 0; i < 4; ++i) call.tensor(DType::f32, {4});
  call.arg(Arg(true)).arg(Arg(0.1)).arg(Arg(1e-5));
  EXPECT_EQ(call("aten::cudnn_batch_norm"),
            "f16[2, 4, 3, 3]{36, 1, 12, 4} cuda:0 f32[4] cuda:0 f32[4] cuda:0 u8[48] cuda:0");
  cudnn_batch_norm_bytes = nullptr;
  EXPECT_EQ(call("aten::cudnn_batch_norm"), "cuDNN chooses the size of a result");
  cudnn_batch_norm_bytes = before;
}

Call depthwise(int64_t batch) {
  Call call;
  call.tensor(fresh(DType::bf16, kCuda, {batch, 32, 8, 8}, {2048, 1, 256, 32}));
  call.tensor(DType::bf16, {32, 1, 3, 3}).arg(Arg(None{}));
  for (const int64_t each : {1, 1, 1}) call.arg(Arg(ArgList{Arg(each), Arg(each)}));
  return call.arg(Arg(false))
      .arg(Arg(ArgList{Arg(int64_t{0}), Arg(int64_t{0})}))
      .arg(Arg(int64_t{32}));
}

TEST(CudaRows, DepthwiseConvolutionsKeepTheChannelsLast) {
  EXPECT_EQ(depthwise(2)("aten::convolution"), "bf16[2, 32, 8, 8]{2048, 1, 256, 32} cuda:0");
  EXPECT_EQ(depthwise(1 << 20)("aten::convolution"),
            "cuDNN or a kernel of torch may compute large depthwise convolutions");
}

// A weight of a 1x1 convolution, with the channels last: strides that mean nothing are written in two ways.
Call weights_and_gradients(DType gradient) {
  Call call;
  call.list({fresh(DType::f32, kCuda, {8, 4, 1, 1}, {4, 1, 4, 4})});
  call.list({fresh(gradient, kCuda, {8, 4, 1, 1})});
  return call.arg(Arg(int64_t{1}));
}

TEST(CudaRows, ListsTakenByKernelsForListsKeepTheirStrides) {
  EXPECT_EQ(weights_and_gradients(DType::f32)("aten::_foreach_add.List"),
            "f32[8, 4, 1, 1]{4, 1, 4, 4} cuda:0");
}

TEST(CudaRows, ListsOfSeveralDtypesAreAddedOneByOne) {
  EXPECT_EQ(weights_and_gradients(DType::bf16)("aten::_foreach_add.List"),
            "f32[8, 4, 1, 1] cuda:0");
}

TEST(CudaRows, CellsOfRecurrentLayers) {
  Call lstm;
  lstm.tensor(DType::f32, {3, 64}).tensor(DType::f32, {3, 64}).tensor(DType::f32, {3, 16});
  EXPECT_EQ(lstm("aten::_thnn_fused_lstm_cell"),
            "f32[3, 16] cuda:0 f32[3, 16] cuda:0 f32[3, 64] cuda:0");
  Call gru;
  gru.tensor(DType::f32, {3, 16}).tensor(DType::f32, {3, 80}).arg(Arg(true));
  EXPECT_EQ(gru("aten::_thnn_fused_gru_cell_backward"),
            "f32[3, 48] cuda:0 f32[3, 48] cuda:0 f32[3, 16] cuda:0 f32[48] cuda:0 f32[48] cuda:0");
}

}  // namespace
}  // namespace smelt
