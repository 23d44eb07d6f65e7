// Every row that makes kernels, over the dtypes: what can be lowered makes a kernel that is well
// formed.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "base/arg.h"
#include "ops/meaning.h"
#include "ops/rows.h"
#include "ops/run_node_test.h"

namespace smelt {
namespace {

// Ops that take the same arguments; T is the dtype under test.
struct Sample {
  std::string_view ops;
  std::vector<std::string> inputs;
  std::string_view args;
};

const std::vector<Sample>& samples() {
  static const std::vector<Sample> all = {
      {"abs acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp exp2 expm1 floor frac log "
       "log10 log1p log2 neg reciprocal round rsqrt sgn sigmoid sign sin sinc sinh special_entr "
       "sqrt tan tanh trunc angle deg2rad rad2deg bitwise_not isinf isnan isneginf isposinf "
       "logical_not signbit relu silu mish hardsigmoid hardswish alias detach "
       "lift lift_fresh lift_fresh_copy alias_copy detach_copy _conj_physical squeeze squeeze_copy "
       "t t_copy zero sum prod max min all any",
       {"T[2, 3]"},
       "%0"},
      {"atan2 copysign.Tensor div.Tensor eq.Tensor floor_divide fmax fmin fmod.Tensor ge.Tensor "
       "gt.Tensor heaviside hypot le.Tensor logaddexp logaddexp2 logical_and logical_or "
       "logical_xor lt.Tensor maximum minimum mul.Tensor ne.Tensor pow.Tensor_Tensor "
       "remainder.Tensor special_xlog1py xlogy.Tensor bitwise_and.Tensor bitwise_or.Tensor "
       "bitwise_xor.Tensor bitwise_left_shift.Tensor bitwise_right_shift.Tensor clamp_max.Tensor "
       "clamp_min.Tensor _prelu_kernel sigmoid_backward tanh_backward silu_backward mish_backward "
       "hardsigmoid_backward hardswish_backward",
       {"T[2, 3]", "T[3]"},
       "%0, %1"},
      {"add.Tensor sub.Tensor rsub.Tensor", {"T[2, 3]", "T[3]"}, "%0, %1, 2"},
      {"add.Scalar sub.Scalar rsub.Scalar", {"T[2, 3]"}, "%0, 3, 1"},
      {"copysign.Scalar div.Scalar eq.Scalar floor_divide.Scalar fmod.Scalar ge.Scalar gt.Scalar "
       "le.Scalar lt.Scalar mul.Scalar ne.Scalar remainder.Scalar pow.Tensor_Scalar "
       "bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar bitwise_left_shift.Tensor_Scalar "
       "bitwise_right_shift.Tensor_Scalar clamp_max clamp_min fill.Scalar leaky_relu celu "
       "hardshrink softshrink",
       {"T[2, 3]"},
       "%0, 2"},
      {"pow.Scalar remainder.Scalar_Tensor", {"T[2, 3]"}, "2, %0"},
      {"div.Tensor_mode", {"T[2, 3]", "T[3]"}, "%0, %1, \"floor\""},
      {"div.Scalar_mode", {"T[2, 3]"}, "%0, 2, \"trunc\""},
      {"round.decimals", {"T[2, 3]"}, "%0, 2"},
      {"logit", {"T[2, 3]"}, "%0, 0.1"},
      {"nan_to_num", {"T[2, 3]"}, "%0, none, none, none"},
      {"clamp hardtanh", {"T[2, 3]"}, "%0, 0, 2"},
      {"softplus threshold", {"T[2, 3]"}, "%0, 1, 20"},
      {"elu", {"T[2, 3]"}, "%0, 1, 1, 1"},
      {"gelu", {"T[2, 3]"}, "%0, \"tanh\""},
      {"gelu_backward", {"T[2, 3]", "T[2, 3]"}, "%0, %1, \"none\""},
      {"clamp.Tensor lerp.Tensor", {"T[2, 3]", "T[2, 3]", "T[2, 3]"}, "%0, %1, %2"},
      {"lerp.Scalar threshold_backward hardshrink_backward softshrink_backward",
       {"T[2, 3]", "T[2, 3]"},
       "%0, %1, 0.5"},
      {"logit_backward", {"T[2, 3]", "T[2, 3]"}, "%0, %1, none"},
      {"hardtanh_backward softplus_backward", {"T[2, 3]", "T[2, 3]"}, "%0, %1, 1.0, 2.0"},
      {"leaky_relu_backward", {"T[2, 3]", "T[2, 3]"}, "%0, %1, 0.1, false"},
      {"elu_backward", {"T[2, 3]", "T[2, 3]"}, "%0, 1.0, 1.0, 1.0, false, %1"},
      {"native_dropout_backward", {"T[2, 3]", "b8[2, 3]"}, "%0, %1, 2.0"},
      {"max_pool2d_with_indices_backward",
       {"T[1, 1, 2, 2] cuda:0", "T[1, 1, 4, 4] cuda:0", "i64[1, 1, 2, 2] cuda:0"},
       "%0, %1, [3, 3], [2, 2], [1, 1], [1, 1], false, %2"},
      {"addcmul addcdiv", {"T[2, 3]", "T[3]", "T[2, 1]"}, "%0, %1, %2, 2"},
      {"where.self", {"b8[2, 1]", "T[2, 3]", "T[3]"}, "%0, %1, %2"},
      {"where.ScalarOther", {"b8[2, 1]", "T[2, 3]"}, "%0, %1, 1"},
      {"where.ScalarSelf", {"b8[2, 1]", "T[2, 3]"}, "%0, 1, %1"},
      {"where.Scalar", {"b8[2, 1]"}, "%0, 1, 2"},
      {"masked_fill.Scalar", {"T[2, 3]", "b8[3]"}, "%0, %1, 1"},
      {"masked_fill.Tensor", {"T[2, 3]", "b8[3]", "T[]"}, "%0, %1, %2"},
      {"fill.Tensor", {"T[2, 3]", "f32[]"}, "%0, %1"},
      {"copy", {"T[2, 3]", "f32[3]"}, "%0, %1, false"},
      {"_to_copy", {"T[2, 3]"}, "%0, f32, none, none, none, false, none"},
      {"clone", {"T[2, 3]"}, "%0, none"},
      {"glu", {"T[2, 4]"}, "%0, -1"},
      {"glu_backward", {"T[2, 2]", "T[2, 4]"}, "%0, %1, 1"},
      {"view view_copy _unsafe_view", {"T[2, 6]"}, "%0, [3, 4]"},
      {"expand expand_copy", {"T[2, 1]"}, "%0, [3, 2, 4], false"},
      {"permute permute_copy", {"T[2, 3, 4]"}, "%0, [2, 0, 1]"},
      {"transpose.int transpose_copy.int", {"T[2, 3]"}, "%0, 0, 1"},
      {"select.int select_copy.int", {"T[2, 3]"}, "%0, 0, -1"},
      {"slice.Tensor slice_copy.Tensor", {"T[2, 7]"}, "%0, 1, 1, 6, 2"},
      {"narrow_copy", {"T[2, 3]"}, "%0, 1, 1, 2"},
      {"diagonal diagonal_copy", {"T[2, 3]"}, "%0, 1, 0, 1"},
      {"unfold unfold_copy", {"T[2, 7]"}, "%0, 1, 3, 2"},
      {"unsqueeze unsqueeze_copy squeeze.dim squeeze_copy.dim", {"T[2, 1]"}, "%0, 1"},
      {"squeeze.dims squeeze_copy.dims flip", {"T[2, 1]"}, "%0, [0, 1]"},
      {"roll", {"T[2, 3]"}, "%0, [1], [1]"},
      {"repeat", {"T[2, 3]"}, "%0, [2, 1, 2]"},
      {"slice_scatter", {"T[2, 7]", "T[2, 3]"}, "%0, %1, 1, 1, 6, 2"},
      {"select_scatter", {"T[2, 3]", "T[3]"}, "%0, %1, 0, 1"},
      {"diagonal_scatter", {"T[2, 3]", "T[2]"}, "%0, %1, 1, 0, 1"},
      {"slice_backward", {"T[2, 3]"}, "%0, [2, 7], 1, 1, 6, 2"},
      {"select_backward", {"T[3]"}, "%0, [2, 3], 0, 1"},
      {"diagonal_backward", {"T[2]"}, "%0, [2, 3], 1, 0, 1"},
      {"diag_embed", {"T[2, 3]"}, "%0, 0, -2, -1"},
      {"gather", {"T[2, 3]", "i64[2, 2]"}, "%0, 1, %1, false"},
      {"index_select", {"T[2, 3]", "i32[4]"}, "%0, 1, %1"},
      {"index.Tensor _unsafe_index.Tensor", {"T[2, 3]", "i64[4]"}, "%0, [none, %1]"},
      {"index_put _unsafe_index_put", {"T[2, 3]", "b8[2]", "T[]"}, "%0, [%1], %2, false"},
      {"scatter.value", {"T[2, 3]", "i64[2, 1]"}, "%0, 1, %1, 1"},
      {"scatter.src scatter_add", {"T[2, 3]", "i64[2, 1]", "T[2, 1]"}, "%0, 1, %1, %2"},
      {"embedding", {"T[5, 3]", "i64[2, 2]"}, "%0, %1, -1, false, false"},
      {"take", {"T[2, 3]", "i64[4]"}, "%0, %1"},
      {"cat stack", {"T[2, 3]", "T[2, 3]"}, "[%0, %1], 1"},
      {"tril triu", {"T[3, 3]"}, "%0, 0"},
      {"constant_pad_nd", {"T[2, 3]"}, "%0, [1, 2, 0, -1], 0"},
      {"reflection_pad1d replication_pad1d", {"T[2, 3, 4]"}, "%0, [1, 2]"},
      {"reflection_pad2d replication_pad2d", {"T[2, 3, 4, 5]"}, "%0, [1, 2, 3, 0]"},
      {"reflection_pad3d replication_pad3d", {"T[2, 3, 4, 5, 3]"}, "%0, [1, 2, 3, 0, 1, 1]"},
      {"upsample_nearest1d _upsample_nearest_exact1d", {"T[2, 3, 4]"}, "%0, [7], none"},
      {"upsample_nearest2d _upsample_nearest_exact2d", {"T[2, 3, 4, 5]"}, "%0, [8, 9], none, none"},
      {"upsample_nearest3d _upsample_nearest_exact3d",
       {"T[2, 3, 4, 5, 6]"},
       "%0, [8, 9, 6], none, none, none"},
      {"upsample_linear1d", {"T[2, 3, 4]"}, "%0, [7], true, none"},
      {"upsample_bilinear2d upsample_bicubic2d",
       {"T[2, 3, 4, 5]"},
       "%0, [8, 9], false, none, none"},
      {"upsample_trilinear3d", {"T[2, 3, 4, 5, 6]"}, "%0, [8, 9, 6], false, none, none, none"},
      {"reflection_pad1d_backward replication_pad1d_backward",
       {"T[2, 3, 7]", "T[2, 3, 4]"},
       "%0, %1, [1, 2]"},
      {"reflection_pad2d_backward replication_pad2d_backward",
       {"T[2, 3, 7, 8]", "T[2, 3, 4, 5]"},
       "%0, %1, [1, 2, 3, 0]"},
      {"replication_pad3d_backward",
       {"T[2, 3, 6, 7, 8]", "T[2, 3, 4, 5, 6]"},
       "%0, %1, [1, 1, 1, 1, 1, 1]"},
      {"im2col", {"T[2, 3, 4, 5]"}, "%0, [2, 3], [1, 1], [1, 0], [2, 1]"},
      {"col2im", {"T[2, 18, 9]"}, "%0, [4, 5], [2, 3], [1, 1], [1, 0], [2, 1]"},
      {"bucketize.Tensor", {"T[2, 3]", "T[5]"}, "%0, %1, false, true"},
      {"searchsorted.Tensor", {"T[2, 5]", "T[2, 3]"}, "%0, %1, false, false, none, none"},
      {"upsample_nearest1d_backward _upsample_nearest_exact1d_backward",
       {"T[2, 3, 7]"},
       "%0, [7], [2, 3, 4], none"},
      {"upsample_nearest2d_backward _upsample_nearest_exact2d_backward",
       {"T[2, 3, 5, 7]"},
       "%0, [5, 7], [2, 3, 5, 4], none, none"},
      {"upsample_nearest3d_backward _upsample_nearest_exact3d_backward",
       {"T[2, 3, 2, 7, 3]"},
       "%0, [2, 7, 3], [2, 3, 2, 4, 3], none, none, none"},
      {"upsample_linear1d_backward", {"T[2, 3, 7]"}, "%0, [7], [2, 3, 4], true, none"},
      {"upsample_bilinear2d_backward upsample_bicubic2d_backward",
       {"T[2, 3, 5, 7]"},
       "%0, [5, 7], [2, 3, 5, 4], false, none, none"},
      {"upsample_trilinear3d_backward",
       {"T[2, 3, 2, 7, 3]"},
       "%0, [2, 7, 3], [2, 3, 2, 4, 3], false, none, none, none"},
      {"_adaptive_avg_pool2d", {"T[2, 3, 7, 6]"}, "%0, [3, 4]"},
      {"_adaptive_avg_pool3d", {"T[2, 3, 4, 5, 6]"}, "%0, [3, 2, 4]"},
      {"avg_pool2d", {"T[2, 3, 7, 6]"}, "%0, [3, 3], [2, 2], [1, 1], false, false, none"},
      {"avg_pool2d_backward",
       {"T[2, 3, 4, 3]", "T[2, 3, 7, 6]"},
       "%0, %1, [3, 3], [2, 2], [1, 1], false, true, none"},
      {"avg_pool3d", {"T[2, 3, 4, 4, 4]"}, "%0, [2], [1], [0], false, true, none"},
      {"avg_pool3d_backward",
       {"T[2, 3, 3, 3, 3]", "T[2, 3, 4, 4, 4]"},
       "%0, %1, [2], [1], [0], false, true, 3"},
      {"max_pool2d", {"T[2, 3, 7, 6]"}, "%0, [3, 3], [2, 2], [1, 1], [1, 1], false"},
      {"max_pool3d", {"T[2, 3, 4, 7, 6]"}, "%0, [2], [2], [1], [1], false"},
      {"binary_cross_entropy", {"T[2, 3]", "T[2, 3]"}, "%0, %1, none, 0"},
      {"pixel_shuffle", {"T[1, 8, 3, 2]"}, "%0, 2"},
      {"pixel_unshuffle", {"T[1, 2, 6, 4]"}, "%0, 2"},
      {"zeros ones", {}, "[2, 3], T, none, none, none"},
      {"zeros_like ones_like", {"T[2, 3]"}, "%0, none, none, none, none, none"},
      {"full_like", {"T[2, 3]"}, "%0, 3, none, none, none, none, none"},
      {"full", {}, "[2, 3], 3, T, none, none, none"},
      {"new_zeros new_ones", {"T[2, 3]"}, "%0, [4], none, none, none, none"},
      {"new_full", {"T[2, 3]"}, "%0, [4], 3, none, none, none, none"},
      {"scalar_tensor", {}, "3, T, none, none, none"},
      {"eye", {}, "3, T, none, none, none"},
      {"eye.m", {}, "3, 4, T, none, none, none"},
      {"arange", {}, "7, T, none, none, none"},
      {"arange.start", {}, "1, 7, T, none, none, none"},
      {"arange.start_step", {}, "1, 7, 2, T, none, none, none"},
      {"linspace", {}, "0, 1, 5, T, none, none, none"},
      {"sum.dim_IntList", {"T[2, 3]"}, "%0, [1], true, none"},
      {"prod.dim_int", {"T[2, 3]"}, "%0, 1, false, none"},
      {"amax amin", {"T[2, 3]"}, "%0, [], false"},
      {"argmax argmin all.dim any.dim", {"T[2, 3]"}, "%0, 0, false"},
      {"all.dims any.dims", {"T[2, 3]"}, "%0, [0], true"},
  };
  return all;
}

std::string with_dtype(std::string text, std::string_view dtype) {
  for (size_t at = 0; (at = text.find('T', at)) != std::string::npos; at += dtype.size()) {
    text.replace(at, 1, dtype);
  }
  return text;
}

// The types of the inputs and of the results, as a graph of the one node.
std::string text_of(const std::string& op, const Sample& sample, std::string_view dtype) {
  std::vector<std::string> types;
  for (const std::string& input : sample.inputs) types.push_back(with_dtype(input, dtype));
  const std::string args = with_dtype(std::string(sample.args), dtype);
  const std::string list = "[" + args + "]";
  const ArgList parsed = parse_arg(list)->get<ArgList>();
  // A graph without the node reads the types.
  const std::string unused = "%" + std::to_string(types.size()) + ": f32[] = aten::none()";
  const Graph inputs = graph_of(types, unused);
  std::vector<TensorType> input_types;
  for (const Input& input : inputs.inputs) input_types.push_back(inputs.type(input.value));
  SymbolTable symbols;
  ShapeQuery query(parsed, input_types, symbols, DType::f32);
  const OpRow* row = find_row(OpName("aten::" + op));
  if (row == nullptr || !row->shape(query)) return "";
  std::string results;
  for (size_t i = 0; i < query.results.size(); ++i) {
    const std::string number = "%" + std::to_string(types.size() + i);
    results += i ? ", _" : number + ": " + query.results[0]->str();
  }
  const bool is_view = !query.results[0]->offset.is(0);
  return results + " = aten::" + op + "(" + args + ")" + (is_view ? " view" : "");
}

TEST(MeaningRows, MakeKernels) {
  std::set<std::string> made;
  for (const Sample& sample : samples()) {
    std::istringstream ops{std::string(sample.ops)};
    for (std::string op; ops >> op;) {
      for (std::string_view dtype : {"f32", "f64", "bf16", "f16", "i64", "i32", "u8", "b8"}) {
        const std::string line = text_of(op, sample, dtype);
        if (line.empty()) continue;
        std::vector<std::string> types;
        for (const std::string& input : sample.inputs) types.push_back(with_dtype(input, dtype));
        const Graph graph = graph_of(types, line);
        if (!can_lower(graph, graph.nodes[0])) continue;
        SCOPED_TRACE(line);
        EXPECT_NO_THROW(kernel_of(graph, graph.nodes[0]).verify());
        made.insert("aten::" + op);
      }
    }
  }
  for (const Meaning& meaning : all_meanings()) {
    if ((!meaning.element && !meaning.reduction) || !meaning.name.starts_with("aten::")) continue;
    EXPECT_TRUE(made.contains(std::string(meaning.name))) << meaning.name << " is in no sample";
  }
}

TEST(MeaningRows, GradientsOfMaximaOnAGpu) {
  // Windows of 3, 2 apart, with a border of 1, over 4 x 4: element 5 is the maximum of all four.
  const std::string line =
      "%3: f32[1, 1, 4, 4] cuda:0 = aten::max_pool2d_with_indices_backward(%0, %1, [3, 3], [2, 2], "
      "[1, 1], [1, 1], false, %2)";
  const InputNumbers image{"f32[1, 1, 4, 4] cuda:0", Numbers(16)};
  EXPECT_EQ(run_line({{"f32[1, 1, 2, 2] cuda:0", {1, 2, 4, 8}},
                      image,
                      {"i64[1, 1, 2, 2] cuda:0", {5, 5, 5, 5}}},
                     line),
            (Numbers{0, 0, 0, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(run_line({{"f32[1, 1, 2, 2] cuda:0", {1, 2, 4, 8}},
                      image,
                      {"i64[1, 1, 2, 2] cuda:0", {0, 3, 4, 15}}},
                     line),
            (Numbers{1, 0, 0, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8}));
}

}  // namespace
}  // namespace smelt
