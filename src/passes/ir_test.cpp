// Every pass of passes.def on the cases of its <pass>_test.ir. A pass without cases fails.
#include "passes/ir_test.h"

#include "passes/passes.h"

namespace smelt {
namespace {

// Stands in for running ops: the type is the one the graph promises, the digest tells what was
// computed.
std::optional<std::vector<FoldedConstant>> evaluate(const Graph& graph, const Node& node) {
  if (node.op == OpName("test::refused")) return std::nullopt;
  std::string digest = node.op.str().substr(node.op.str().find("::") + 2);
  for (const Arg& arg : node.args) {
    each_ref(arg, [&](Ref ref) {
      for (const Constant& constant : graph.constants) {
        if (constant.value == ref.id) digest += "-" + constant.digest;
      }
    });
  }
  std::vector<FoldedConstant> folded;
  for (ValueId result : node.results) {
    const std::string which = node.results.size() == 1 ? "" : "-" + std::to_string(folded.size());
    folded.push_back({.type = result < 0 ? TensorType() : graph.type(result),
                      .data = nullptr,
                      .digest = digest + which});
  }
  if (node.op == OpName("test::other_type")) folded.at(0).type.dtype = DType::f64;
  return folded;
}

class Passes : public testing::TestWithParam<PassInfo> {};

TEST_P(Passes, DoWhatTheirCasesSay) {
  const PassInfo& pass = GetParam();
  expect_ir_cases(__FILE__, std::string(pass.name) + "_test.ir", [&](const std::string& text) {
    Graph graph = Graph::parse(text);
    graph.verify();
    PassOptions options;
    options.evaluate = evaluate;
    const Device second_gpu{.type = 1, .index = 1};
    options.has_kernels = [&](const Device& device) {
      return device.is_cpu() || device == second_gpu;
    };
    options.drawing_blocks = [&](const Device& device) { return device == second_gpu ? 8 : 0; };
    options.frozen = captured_inputs(graph);
    options.has_op = [](OpName) { return true; };
    options.onednn_takes = [](DType) { return true; };
    Record record;
    run_pass(graph, pass, options, record);
    const std::string once = graph.str();
    run_pass(graph, pass, options, record);
    EXPECT_EQ(graph.str(), once) << pass.name << " finds more to do when it runs again";
    return once;
  });
}

INSTANTIATE_TEST_SUITE_P(All, Passes, testing::ValuesIn(all_passes()),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace smelt
