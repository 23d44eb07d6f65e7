#include "bridge/log_program.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <functional>

#include "bridge/choose_program.h"
#include "bridge/machine/linked_program.h"

namespace smelt {
namespace {

using Tensors = std::vector<at::Tensor>;
using Code = std::function<Tensors(const Tensors&)>;

// Runs the code under a log.
struct Traced {
  Traced(const Code& code, Tensors in) : arguments(std::move(in)) {
    for (const at::Tensor& argument : arguments) inputs.push_back(log.add_input(argument));
    log.resume();
    results = code(arguments);
    log.pause();
    for (const at::Tensor& result : results) outputs.push_back(log.find(result));
  }

  Tensors arguments;
  OpLog log;
  std::vector<LogValue> inputs, outputs;
  Tensors results;
};

TEST(LogProgram, RepeatsOpsInPlaceChangesAndViews) {
  const Code code = [](const Tensors& in) -> Tensors {
    at::Tensor row = in[0][0];
    row.mul_(3);
    in[0].sin();  // not needed
    return {in[0] + 1, row};
  };
  Traced traced(code, {at::ones({2, 2})});
  const LogProgram program(traced.log, traced.inputs, traced.outputs);
  EXPECT_EQ(program.ops(), 3u);
  EXPECT_FALSE(program.fails_cleanly());
  const at::Tensor x = at::ones({2, 2});
  const Tensors results = program.run({x});
  EXPECT_TRUE(at::equal(results[0], traced.results[0]));
  EXPECT_TRUE(at::equal(x[0], at::full({2}, 3.0)));
  EXPECT_TRUE(results[1].is_alias_of(x));
}

TEST(LogProgram, EntersOpsIntoAutogradUnderTheirOwnGradMode) {
  const Code code = [](const Tensors& in) -> Tensors {
    at::Tensor fixed;
    {
      at::NoGradGuard off;
      fixed = in[0] * 2;
    }
    return {fixed * in[0]};
  };
  Traced traced(code, {at::ones({2}).set_requires_grad(true)});
  const LogProgram program(traced.log, traced.inputs, traced.outputs);
  EXPECT_TRUE(program.uses_autograd());
  const at::Tensor x = at::full({2}, 3.0).set_requires_grad(true);
  program.run({x})[0].sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({2}, 6.0)));
  EXPECT_TRUE(at::GradMode::is_enabled());
}

TEST(LogProgram, LeavesAutocastAsItWas) {
  const Code code = [](const Tensors& in) -> Tensors {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    Tensors out = {at::mm(in[0], in[0])};
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return out;
  };
  Traced traced(code, {at::ones({2, 2})});
  const LogProgram program(traced.log, traced.inputs, traced.outputs);
  EXPECT_EQ(program.run({at::ones({2, 2})})[0].scalar_type(), at::kBFloat16);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(LogProgram, PutsRandomStateBackWhenItFails) {
  const Code code = [](const Tensors& in) -> Tensors {
    return {at::rand({2}) + in[0].index({in[1]})};
  };
  Traced traced(code, {at::ones({2}), at::zeros({2}, at::kLong)});
  const LogProgram program(traced.log, traced.inputs, traced.outputs);
  EXPECT_TRUE(program.fails_cleanly());
  at::manual_seed(1);
  EXPECT_THROW(program.run({at::ones({2}), at::full({2}, 7, at::kLong)}), c10::Error);
  const at::Tensor after = at::rand({1});
  at::manual_seed(1);
  EXPECT_TRUE(at::equal(after, at::rand({1})));
}

TEST(OpLog, NamesWhatItCannotRepeat) {
  const at::Tensor other = at::ones({2});
  const auto trouble = [](const Code& code) {
    Traced traced(code, {at::ones({2})});
    const std::optional<OpTrouble> found = traced.log.take_trouble();
    return found ? found->detail : "";
  };
  EXPECT_EQ(trouble([](const Tensors& in) -> Tensors { return {in[0] + in[0].sum().item()}; }),
            "aten::item");
  // A shape that depends on contents may be handed on, but not computed with.
  EXPECT_EQ(trouble([](const Tensors& in) -> Tensors { return {in[0].nonzero()}; }), "");
  EXPECT_NE(trouble([](const Tensors& in) -> Tensors { return {in[0].nonzero() + 1}; }), "");
  EXPECT_EQ(trouble([&](const Tensors& in) -> Tensors { return {in[0] * other}; }),
            "aten::mul.Tensor");
  EXPECT_EQ(trouble([](const Tensors& in) -> Tensors {
              return {(in[0] + 1).set_requires_grad(true) * 2};
            }),
            "a change of requires_grad");
  EXPECT_EQ(trouble([](const Tensors& in) -> Tensors { return {in[0] * 2}; }), "");
}

TEST(OpLog, ForgetsWhatIsRewound) {
  Traced traced([](const Tensors& in) -> Tensors { return {in[0] * 2, in[0] * 3}; },
                {at::ones({2})});
  traced.log.rewind(1);
  EXPECT_EQ(traced.log.plain().calls.size(), 1u);
  EXPECT_GE(traced.log.find(traced.results[0]), 0);
  EXPECT_EQ(traced.log.find(traced.results[1]), -1);
}

TEST(OpLog, HoldsNoTensors) {
  c10::weak_intrusive_ptr<c10::TensorImpl> middle(at::ones({1}).getIntrusivePtr());
  Traced traced(
      [&](const Tensors& in) -> Tensors {
        at::Tensor step = in[0] * 2;
        middle = c10::weak_intrusive_ptr<c10::TensorImpl>(step.getIntrusivePtr());
        return {step + 1};
      },
      {at::ones({2})});
  EXPECT_TRUE(middle.expired());
}

TEST(ChooseProgram, RunsAGraphWhereThereIsNothingForAutograd) {
  const Code code = [](const Tensors& in) -> Tensors { return {in[0] + at::ones({2})}; };
  Traced traced(code, {at::ones({2})});
  const auto program =
      choose_program(traced.log, traced.inputs, traced.outputs, WantedProgram::fastest);
  ASSERT_EQ(program->kind(), TracedProgram::Kind::graph) << program->refusal();
  EXPECT_TRUE(at::equal(program->run({at::zeros({2})})[0], at::ones({2})));

  Traced tracked(code, {at::ones({2}).set_requires_grad(true)});
  const auto fallback =
      choose_program(tracked.log, tracked.inputs, tracked.outputs, WantedProgram::graph);
  EXPECT_EQ(fallback->kind(), TracedProgram::Kind::op_by_op);
  EXPECT_EQ(fallback->refusal(), "its results take part in autograd");
}

TEST(ChooseProgram, RunsForwardAndBackwardGraphsForAutograd) {
  const Code code = [](const Tensors& in) -> Tensors { return {(in[0] * in[1]).sin()}; };
  const at::Tensor weight = at::full({2}, 3.0).set_requires_grad(true);
  Traced traced(code, {at::ones({2}), weight});
  const auto program =
      choose_program(traced.log, traced.inputs, traced.outputs, WantedProgram::interpreted);
  ASSERT_EQ(program->kind(), TracedProgram::Kind::training) << program->refusal();
  const at::Tensor input = at::full({2}, 0.5);
  const at::Tensor result = program->run({input, weight})[0];
  EXPECT_EQ(result.grad_fn()->name(), "SmeltBackward");
  EXPECT_TRUE(at::allclose(result, (input * weight).sin()));
  result.sum().backward();
  EXPECT_TRUE(at::allclose(weight.grad(), input * (input * weight).cos()));
}

// Stand-ins for numbers as PyTorch's C++ functions take them.
class Numbers final : public StandIns {
 public:
  struct Number final : c10::SymNodeImpl {
    Number(Numbers* numbers, ScalarId id, double value) : owner(numbers), id(id), value(value) {}
    bool is_int() override { return false; }
    bool is_float() override { return true; }
    bool is_bool() override { return false; }
    double guard_float(const char*, int64_t) override {
      owner->look_at(id);
      return value;
    }
    Numbers* owner;
    ScalarId id;
    double value;
  };
  c10::Scalar make(ScalarId id, double value) {
    return c10::SymFloat(c10::SymNode(c10::make_intrusive<Number>(this, id, value)));
  }
  std::optional<Found> find(const c10::SymNodeImpl& node) override {
    const auto* number = dynamic_cast<const Number*>(&node);
    if (number == nullptr) return std::nullopt;
    return Found{number->id, number->value};
  }
  std::optional<Found> find(const at::Tensor&) override { return std::nullopt; }
  void look_at(ScalarId id) override { looked_at.push_back(id); }
  void reach() override { ++ops; }

  std::vector<ScalarId> looked_at;
  size_t ops = 0;
};

TEST(LogProgram, TakesNumbersAtRunTime) {
  Numbers numbers;
  const at::Tensor x = at::arange(4).to(at::kFloat);
  OpLog log;
  const LogValue input = log.add_input(x);
  log.resume();
  log.set_stand_ins(&numbers);
  const at::Tensor low = x.clamp_min(numbers.make(7, 1.5));
  const std::vector<at::Tensor> sums =
      at::_foreach_add({low, x}, {numbers.make(7, 1.5), numbers.make(9, 2.0)});
  log.set_stand_ins(nullptr);
  log.pause();
  EXPECT_FALSE(log.take_trouble());
  EXPECT_EQ(numbers.ops, 2u);
  EXPECT_TRUE(numbers.looked_at.empty());
  EXPECT_TRUE(at::equal(sums[0], x.clamp_min(1.5) + 1.5));

  const LogValue inputs[] = {input};
  const LogValue outputs[] = {log.find(sums[0]), log.find(sums[1])};
  const ScalarId scalars[] = {9, 7};
  const smelt::Number examples[] = {2.0, 1.5};
  const LogProgram::Interface interface{inputs, outputs, scalars, examples, {}, {}};
  const LogProgram program(log, interface);
  const c10::Scalar values[] = {-3.0, 0.25};
  const Tensors results = program.run({x}, values);
  EXPECT_TRUE(at::equal(results[0], x.clamp_min(0.25) + 0.25));
  EXPECT_TRUE(at::equal(results[1], x - 3.0));
  EXPECT_NE(program.str().find("s1"), std::string::npos);

  const auto graph = choose_program(log, interface, WantedProgram::graph);
  EXPECT_EQ(graph->kind(), TracedProgram::Kind::graph) << graph->refusal();
  EXPECT_TRUE(at::equal(graph->run({x}, values)[0], results[0]));
}

TEST(LogProgram, NumbersThatDecideAboutShapesAreLookedAt) {
  Numbers numbers;
  OpLog log;
  log.resume();
  log.set_stand_ins(&numbers);
  const at::Tensor made = at::arange(numbers.make(3, 4.0));
  log.set_stand_ins(nullptr);
  log.pause();
  EXPECT_EQ(made.numel(), 4);
  EXPECT_EQ(numbers.looked_at, std::vector<ScalarId>{3});
  ASSERT_EQ(log.plain().calls.size(), 1u);
  EXPECT_TRUE(log.plain().calls[0].takes.empty());
}

TEST(LogProgram, ReadsSizesThatContentsDecide) {
  const at::Tensor x = at::arange(6, at::kFloat), mask = x > 2;
  OpLog log;
  log.keep_numbers(true);
  log.set_count([] { return true; });
  const LogValue inputs[] = {log.add_input(x), log.add_input(mask)};
  log.resume();
  const at::Tensor kept = at::index(x, {mask});
  log.pause();
  EXPECT_FALSE(log.take_trouble());
  ASSERT_EQ(log.numbers(), 1);

  const LogValue outputs[] = {log.find(kept)};
  const NumberStep numbers[] = {
      {.id = 5, .item = 0, .op = {}, .a = {}, .b = {}, .seen = int64_t{3}}};
  const ScalarId wanted[] = {5};
  const LogProgram program(log, {inputs, outputs, {}, {}, numbers, wanted});
  const Tensors results = program.run({x, x > 0});
  EXPECT_TRUE(at::equal(results.at(0), x.slice(0, 1)));
  EXPECT_EQ(results.at(1).item<int64_t>(), 5);

  log.expect_sizes_but({});  // nobody follows it
  const LogProgram as_it_was(log, inputs, outputs);
  EXPECT_TRUE(at::equal(as_it_was.run({x, x < 3}).at(0), x.slice(0, 0, 3)));
  EXPECT_THROW(as_it_was.run({x, x > 0}), Mispredicted);
}

}  // namespace
}  // namespace smelt
