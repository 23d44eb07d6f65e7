#include <gtest/gtest.h>

#include "base/error.h"
#include "diagnostics/log.h"
#include "passes/passes.h"

namespace smelt {
namespace {

// An input, a node nobody reads, and a node whose result is the output.
Graph small_graph() {
  Graph graph;
  TensorType type;
  type.sizes = {2};
  type.strides = {1};
  const std::optional<TensorType> one[] = {type};
  const ValueId x = graph.add_input(type, Source::argument, 0);
  graph.add_node(OpName("aten::sin"), {Ref{x}}, one);
  const NodeId cos = graph.add_node(OpName("aten::cos"), {Ref{x}}, one);
  graph.outputs = {graph.nodes[cos].results[0]};
  return graph;
}

PassOptions disabling(const std::string& pass) {
  PassOptions options;
  options.disabled = {pass};
  return options;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(RunPasses, RecordsEveryPassInOrder) {
  Graph graph = small_graph();
  Record record;
  run_passes(graph, {}, record);
  ASSERT_EQ(record.entries.size(), all_passes().size());
  for (size_t i = 0; i < record.entries.size(); ++i) {
    EXPECT_EQ(record.entries[i].stage, "passes");
    EXPECT_EQ(record.entries[i].name, all_passes()[i].name);
    EXPECT_GE(record.entries[i].seconds, 0);
  }
  EXPECT_EQ(record.entries.back().name, "remove_dead");
  EXPECT_TRUE(record.entries.back().changed);
  EXPECT_EQ(record.entries.back().note, "2 -> 1 nodes");
}

TEST(RunPasses, SkipsWhatIsDisabled) {
  Graph graph = small_graph();
  Record record;
  run_passes(graph, disabling("remove_dead"), record);
  EXPECT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(record.entries.back().note, "disabled");
}

TEST(RunPasses, ListsThePassesWhenANameIsUnknown) {
  Graph graph = small_graph();
  Record record;
  const std::string message =
      message_of([&] { run_passes(graph, disabling("remove_ded"), record); });
  EXPECT_NE(message.find("'remove_ded'"), std::string::npos) << message;
  for (const PassInfo& pass : all_passes()) {
    EXPECT_NE(message.find(pass.name), std::string::npos) << message;
  }
  EXPECT_TRUE(record.entries.empty());
}

TEST(RunPasses, LogsNodeCountsAndTheGraph) {
  Graph graph = small_graph();
  Record record;
  set_log("passes,graph");
  testing::internal::CaptureStderr();
  run_passes(graph, {}, record);
  const std::string text = testing::internal::GetCapturedStderr();
  set_log("");
  EXPECT_NE(text.find("remove_dead: 2 -> 1 nodes"), std::string::npos) << text;
  EXPECT_NE(text.find(graph.str()), std::string::npos) << text;
}

std::string run_bad_pass(bool (*run)(Graph&, const PassOptions&), bool verify = true) {
  Graph graph = small_graph();
  Record record;
  const PassInfo pass{.name = "bad_pass", .help = "", .run = run};
  PassOptions options;
  options.verify = verify;
  return message_of([&] { run_pass(graph, pass, options, record); });
}

TEST(RunPass, NamesAPassThatLies) {
  const auto silent = [](Graph& graph, const PassOptions&) {
    graph.keep_nodes({false, true});
    return false;
  };
  const auto boasting = [](Graph&, const PassOptions&) { return true; };
  EXPECT_NE(run_bad_pass(silent).find("bad_pass changed the graph without saying so"),
            std::string::npos);
  EXPECT_NE(run_bad_pass(boasting).find("bad_pass says that it changed the graph"),
            std::string::npos);
  EXPECT_EQ(run_bad_pass(boasting, false), "nothing was thrown");
}

TEST(RunPass, NamesAPassThatBreaksTheGraph) {
  const auto breaking = [](Graph& graph, const PassOptions&) {
    std::swap(graph.nodes[0].results, graph.nodes[1].results);
    return true;
  };
  EXPECT_NE(run_bad_pass(breaking).find("the pass bad_pass broke the graph: "), std::string::npos);
}

}  // namespace
}  // namespace smelt
