#include "compile/compile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "diagnostics/counters.h"
#include "runtime/executor.h"

namespace smelt {
namespace {

// What a tensor holds, as text: how it was computed.
using Contents = std::string;

Contents computed(const std::string& op, const std::vector<Arg>& args, size_t result,
                  const std::function<Contents(Ref)>& contents) {
  Contents text = op + "." + std::to_string(result) + "(";
  for (const Arg& arg : args) {
    each_ref(arg, [&](Ref ref) { text += contents(ref) + " "; });
  }
  return std::to_string(std::hash<Contents>()(text + ")"));
}

Contents input_contents(size_t input) { return "input" + std::to_string(input); }

// The contents of the outputs, straight from the graph.
std::vector<Contents> evaluate(const Graph& graph) {
  std::vector<Contents> values(graph.values.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    values[graph.inputs[i].value] = input_contents(i);
  }
  for (const Node& node : graph.nodes) {
    for (size_t i = 0; i < node.results.size(); ++i) {
      if (node.results[i] < 0) continue;
      values[node.results[i]] =
          computed(node.op.str(), node.args, i, [&](Ref ref) { return values[ref.id]; });
    }
  }
  std::vector<Contents> outputs;
  outputs.reserve(graph.outputs.size());
  for (ValueId output : graph.outputs) outputs.push_back(output < 0 ? "" : values[output]);
  return outputs;
}

// Holds contents in registers, and fails on a register that is read empty or filled twice.
class TextMachine : public Machine {
 public:
  explicit TextMachine(const Program& program) : program_(program), held_(program.registers) {
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      held_[program.inputs[i].reg] = input_contents(i);
    }
  }

  void execute(size_t index) override {
    const Step& step = program_.steps[index];
    std::vector<Contents> results;
    results.reserve(step.results.size());
    for (size_t i = 0; i < step.results.size(); ++i) {
      results.push_back(computed(step.op, step.args, i, [&](Ref ref) {
        EXPECT_FALSE(held_[ref.id].empty()) << "%" << ref.id << " is read empty in step " << index;
        return held_[ref.id];
      }));
    }
    for (size_t i = 0; i < results.size(); ++i) {
      if (step.results[i] < 0) continue;
      EXPECT_TRUE(held_[step.results[i]].empty()) << "step " << index << " overwrites a register";
      held_[step.results[i]] = results[i];
    }
  }
  void release(Register reg) override { held_[reg].clear(); }

  std::vector<Contents> outputs() const {
    std::vector<Contents> contents;
    contents.reserve(program_.outputs.size());
    for (Register reg : program_.outputs) contents.push_back(reg < 0 ? "" : held_[reg]);
    return contents;
  }
  size_t held() const {
    return held_.size() - static_cast<size_t>(std::ranges::count(held_, Contents()));
  }

 private:
  const Program& program_;
  std::vector<Contents> held_;
};

Graph random_graph(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](size_t limit) { return static_cast<int32_t>(random() % limit); };
  TensorType type;
  type.sizes = type.strides = {1};
  Graph graph;
  for (int i = 0; i < 3; ++i) graph.add_input(type, Source::argument, i);
  const char* ops[] = {"test::a", "test::b", "test::c"};
  for (int i = 0; i < 40; ++i) {
    const auto recent = [&] {
      const size_t count = graph.values.size();
      return Ref{static_cast<int32_t>(count) - 1 - below(std::min<size_t>(count, 8))};
    };
    std::vector<std::optional<TensorType>> types(1 + below(3), type);
    if (below(8) == 0) types.back().reset();
    graph.add_node(OpName(ops[below(3)]), {recent(), Arg(ArgList{recent(), recent()})}, types);
  }
  for (int i = 0; i < 3; ++i) graph.outputs.push_back(below(graph.values.size()));
  graph.outputs.push_back(-1);
  return graph;
}

TEST(Compile, RandomProgramsComputeWhatTheirGraphsSay) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Graph graph = random_graph(seed);
    const std::vector<Contents> expected = evaluate(graph);
    Record record;
    const Program program = compile(graph, {}, record);
    TextMachine machine(program);
    run(program, machine);
    EXPECT_EQ(machine.outputs(), expected) << "seed " << seed << "\n" << program.str();
    // What is still held is the caller's: the inputs and the outputs.
    EXPECT_LE(machine.held(), program.inputs.size() + program.outputs.size()) << "seed " << seed;
  }
}

TEST(Compile, OptionsAreWhatTheSettingsSay) {
  Settings settings;
  settings.disabled_passes = {"remove_dead"};
  settings.fusion = Fusion::pointwise;
  settings.max_fused_nodes = 8;
  settings.contract = false;
  settings.cuda_graphs = GraphUse::always;
  CompileOptions options = compile_options(settings, {true, false});
  EXPECT_EQ(options.passes.disabled, settings.disabled_passes);
  EXPECT_EQ(options.schedule.fusion, Fusion::pointwise);
  EXPECT_EQ(options.schedule.max_fused_nodes, 8);
  EXPECT_FALSE(options.kernels.contract);
  EXPECT_EQ(options.cuda_graphs, GraphUse::always);
  EXPECT_TRUE(options.frozen.empty());  // the state of modules may change, unless asked otherwise
  settings.freeze = true;
  EXPECT_EQ(compile_options(settings, {true, false}).frozen, (std::vector<bool>{true, false}));
}

TEST(Compile, RecordsItsStagesAndTime) {
  Graph graph = random_graph(0);
  Record record;
  const int64_t before = read(Counter::compile_ns);
  const Program program = compile(graph, {}, record);
  EXPECT_GT(read(Counter::compile_ns), before);
  ASSERT_EQ(record.entries.size(), all_passes().size() + 1);
  const RecordEntry& last = record.entries.back();
  EXPECT_EQ(last.stage, "compile");
  EXPECT_EQ(last.name, "lower");
  EXPECT_EQ(last.note, std::to_string(graph.nodes.size()) + " steps, " +
                           std::to_string(program.registers) + " registers");
}

TEST(Lower, ForgetsWhoLocatesGuards) {
  Graph graph;
  TensorType type;
  type.sizes = {graph.symbols.add(4)};
  type.strides = {1};
  graph.add_input(type, Source::argument, 0);
  bool asked = false;
  graph.symbols.set_locator([&asked] {
    asked = true;
    return std::string("here");
  });
  Program program = lower(graph);
  program.symbols.specialise(type.sizes[0]);
  EXPECT_FALSE(asked);
}

}  // namespace
}  // namespace smelt
