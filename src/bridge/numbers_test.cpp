// Numbers that are known only when a graph runs: recorded, compiled, run.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "bridge/machine/linked_program.h"
#include "bridge/recorded_graph.h"
#include "capture/dispatch/recorder.h"
#include "graph/numbers.h"

namespace smelt {
namespace {

using Scalars = std::vector<at::Scalar>;
using Tensors = std::vector<at::Tensor>;
using Code = std::function<Tensors(Recorder&, const Tensors&, const Scalars&)>;

std::unique_ptr<RecordedGraph::Impl> record(const Code& code, const Tensors& inputs,
                                            const Scalars& examples, const char* engine = "eager") {
  const auto recorder = std::make_shared<Recorder>(RecorderOptions());
  Recorded recorded;
  {
    const RecordingScope scope(recorder);
    Tensors twins;
    for (const at::Tensor& input : inputs) twins.push_back(recorder->add_argument(input));
    Scalars numbers;
    for (const at::Scalar& example : examples) numbers.push_back(recorder->add_number(example));
    recorded = recorder->finish(code(*recorder, twins, numbers));
  }
  CompileOptions options;
  options.schedule.backends = find_backends(engine).value();
  auto impl = std::make_unique<RecordedGraph::Impl>(std::move(recorded), options);
  impl->graph.verify();
  return impl;
}

Tensors run(const RecordedGraph::Impl& graph, Tensors inputs, const Scalars& numbers) {
  for (const at::Scalar& number : numbers)
    inputs.push_back(at::scalar_tensor(number, at::dtype(number.type())));
  return graph.run(inputs);
}

constexpr const char* kEngines[] = {"eager", "interpret", "native"};

TEST(Numbers, StandWhereOpsTakeScalarsAndTensors) {
  const Code code = [](Recorder& recorder, const Tensors& in, const Scalars& n) -> Tensors {
    const at::Tensor sum = at::add(in[0], in[0], n[0]);
    return {at::mul(sum, recorder.wrapped(n[1])), at::clamp(in[0], n[0]),
            at::_foreach_add({in[0], in[0]}, Scalars{n[0], 2.5})[0]};
  };
  const at::Tensor x = at::arange(6, at::kFloat).view({2, 3});
  for (const char* engine : kEngines) {
    const auto graph = record(code, {x}, {2.0, 3}, engine);
    for (const double a : {2.0, -0.5})
      for (const int64_t b : {int64_t{3}, int64_t{-7}}) {
        const Tensors out = run(*graph, {x}, {a, b});
        EXPECT_TRUE(at::allclose(out[0], (x + a * x) * b));
        EXPECT_TRUE(at::equal(out[1], at::clamp(x, a)));
        EXPECT_TRUE(at::allclose(out[2], x + a));
      }
  }
}

TEST(Numbers, CountForTypesAsPythonsDo) {
  const Code code = [](Recorder& recorder, const Tensors& in, const Scalars& n) -> Tensors {
    return {in[0] * recorder.wrapped(n[0]), in[0] + recorder.wrapped(n[1]), at::full({2}, n[0]),
            at::full({2}, n[1])};
  };
  for (const char* engine : kEngines)
    for (const at::ScalarType dtype : {at::kLong, at::kBFloat16, at::kDouble, at::kBool})
      for (const std::vector<int64_t>& sizes : {std::vector<int64_t>(), std::vector<int64_t>{3}}) {
        const at::Tensor x = at::ones(sizes, dtype);
        const Tensors out = run(*record(code, {x}, {2.5, 3}, engine), {x}, {0.25, 7});
        EXPECT_EQ(out[0].scalar_type(), (x * 0.25).scalar_type());
        EXPECT_EQ(out[1].scalar_type(), (x + 7).scalar_type());
        EXPECT_TRUE(at::equal(out[0], x * 0.25));
        EXPECT_TRUE(at::equal(out[1], x + 7));
        EXPECT_EQ(out[2].scalar_type(), at::kFloat);
        EXPECT_EQ(out[3].scalar_type(), at::kLong);
        for (const at::Tensor& tensor : out)
          EXPECT_FALSE(tensor.unsafeGetTensorImpl()->is_wrapped_number());
      }
}

TEST(Numbers, AreComputedAsPythonDoes) {
  const Code code = [](Recorder& r, const Tensors& in, const Scalars& n) -> Tensors {
    const at::Scalar power = r.compute(NumberOp::pow, 0.9, n[0]);
    const at::Scalar corrected = r.compute(NumberOp::sub, 1.0, power);
    const at::Scalar step = r.compute(NumberOp::div, n[1], corrected);
    return {at::addcdiv(in[0], in[0], in[0] + 1, r.compute(NumberOp::neg, step, false)),
            r.as_tensor(step), r.as_tensor(r.compute(NumberOp::floor_div, n[0], 2))};
  };
  const at::Tensor x = at::arange(4, at::kFloat);
  for (const char* engine : kEngines) {
    const auto graph = record(code, {x}, {1, 0.1}, engine);
    for (const int64_t n : {int64_t{1}, int64_t{5}}) {
      const double step = 0.25 / (1.0 - std::pow(0.9, static_cast<double>(n)));
      const Tensors out = run(*graph, {x}, {n, 0.25});
      EXPECT_EQ(out[1].scalar_type(), at::kDouble);
      EXPECT_EQ(out[1].item<double>(), step);
      EXPECT_EQ(out[2].item<int64_t>(), n / 2);
      EXPECT_EQ(out[2].scalar_type(), at::kLong);
      EXPECT_TRUE(at::allclose(out[0], at::addcdiv(x, x, x + 1, -step)));
    }
    EXPECT_THROW(run(*graph, {x}, {0, 0.25}), Mispredicted);  // 1 / 0.0
  }
}

TEST(Numbers, AreItemsOfTensors) {
  const Code code = [](Recorder& r, const Tensors& in, const Scalars&) -> Tensors {
    in[1].add_(1);
    const at::Scalar step = r.item(in[1]);
    return {at::mul(in[0], r.wrapped(step)), at::pow(in[0], r.item(in[0].sum()))};
  };
  for (const char* engine : kEngines) {
    const at::Tensor x = at::full({2}, 1.5);
    const auto graph = record(code, {x, at::zeros({})}, {}, engine);
    const at::Tensor steps = at::full({}, 4.0);
    const Tensors out = run(*graph, {x, steps}, {});
    EXPECT_TRUE(at::equal(out[0], x * 5));
    EXPECT_TRUE(at::allclose(out[1], at::pow(x, 3)));
    EXPECT_EQ(steps.item<float>(), 5.0f);
  }
}

TEST(Numbers, AreExpectedBeforeAnythingIsChanged) {
  const Code code = [](Recorder& r, const Tensors& in, const Scalars& n) -> Tensors {
    in[0].mul_(2);
    r.expect(r.compute(NumberOp::gt, n[0], 1.0), true);
    in[0].add_(in[0], n[0]);
    const at::Scalar sum = r.item(in[0].sum(), 10.0);
    r.expect(r.compute(NumberOp::lt, sum, 100.0), true);
    in[0].add_(1);
    return {};
  };
  for (const char* engine : kEngines) {
    at::Tensor x = at::ones({2});
    const auto graph = record(code, {x}, {2.0}, engine);
    EXPECT_THROW(run(*graph, {x}, {0.5}), Mispredicted);
    EXPECT_TRUE(at::equal(x, at::ones({2})));
    EXPECT_THROW(run(*graph, {x}, {1000.0}), Mispredicted);
    EXPECT_TRUE(at::equal(x, at::ones({2})));
    run(*graph, {x}, {3.0});
    EXPECT_TRUE(at::equal(x, at::full({2}, 9.0)));
  }
}

TEST(Numbers, ThatDoNotFitAreNoticedBeforeAnythingIsChanged) {
  const Code code = [](Recorder&, const Tensors& in, const Scalars& n) -> Tensors {
    in[0].fill_(n[0]);
    return {};
  };
  at::Tensor x = at::zeros({2}, at::kHalf);
  const auto graph = record(code, {x}, {2.0}, "native");
  EXPECT_THROW(run(*graph, {x}, {1e6}), Mispredicted);
  run(*graph, {x}, {7.0});
  EXPECT_TRUE(at::equal(x, at::full({2}, 7.0, at::kHalf)));
}

TEST(Numbers, AreNeverBurntIn) {
  const auto refusal = [](const Code& code, const Scalars& examples) -> std::string {
    try {
      record(code, {at::ones({2, 2})}, examples);
    } catch (const RecordError& error) {
      return error.what();
    }
    return "";
  };
  const Code norm = [](Recorder&, const Tensors& in, const Scalars& n) -> Tensors {
    return {at::layer_norm(in[0], {2}, {}, {}, n[0].toDouble())};
  };
  EXPECT_NE(refusal(norm, {1e-5}).find("asks for the value of a number"), std::string::npos);
  const Code range = [](Recorder&, const Tensors&, const Scalars& n) -> Tensors {
    return {at::arange(n[0])};
  };
  EXPECT_NE(refusal(range, {5}).find("aten::arange"), std::string::npos);
  const Code type = [](Recorder& r, const Tensors&, const Scalars& n) -> Tensors {
    return {r.as_tensor(r.compute(NumberOp::max, n[0], n[1]))};
  };
  EXPECT_NE(refusal(type, {1, 2.0}).find("depends on their values"), std::string::npos);
}

TEST(Numbers, InDerivativesAreComparedOnce) {
  // The derivative multiplies by alpha unless that is 1.
  const Code code = [](Recorder&, const Tensors& in, const Scalars& n) -> Tensors {
    const at::Tensor y = at::add(in[0], in[1], n[0]);
    return torch::autograd::grad({y.sum()}, {in[1]});
  };
  const auto leaf = [] { return at::ones({2}).set_requires_grad(true); };
  const auto graph = record(code, {leaf(), leaf()}, {2.0});
  EXPECT_TRUE(at::equal(run(*graph, {leaf(), leaf()}, {5.0})[0], at::full({2}, 5.0)));
  EXPECT_THROW(run(*graph, {leaf(), leaf()}, {1.0}), Mispredicted);
}

TEST(Numbers, StandInTextAsTheyAre) {
  const Code code = [](Recorder& r, const Tensors& in, const Scalars& n) -> Tensors {
    return {at::add(in[0], r.wrapped(n[0]), r.compute(NumberOp::mul, n[0], 2))};
  };
  EXPECT_EQ(record(code, {at::ones({2}, at::kDouble)}, {3})->graph.str(), R"(graph {
  input %0: f64[2] = argument 0
  input %1: i64[] number = argument 1
  %2: i64[] number = smelt::number("mul", %1, 2)
  %3: f64[2] = aten::add.Tensor(%0, %1, %2)
  return (%3)
}
)");
}

}  // namespace
}  // namespace smelt
