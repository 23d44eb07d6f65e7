// Analyses of logs as text (base/ir_test.h): a log, and what is found.
#include "base/ir_test.h"

#include "log/call_log.h"
#include "log/contents.h"
#include "log/liveness.h"
#include "log/shared_history.h"
#include "log/stages.h"
#include "log/trainability.h"
#include "log/writes.h"

namespace smelt {
namespace {

CallLog read(const std::string& text) {
  CallLog log = CallLog::parse(text);
  log.verify();
  EXPECT_EQ(log.str(), text);
  EXPECT_EQ(CallLog::parse(log.str()), log);
  return log;
}

std::vector<LogValue> inputs_of(const CallLog& log) {
  std::vector<LogValue> inputs;
  for (size_t i = 0; i < log.values.size(); ++i)
    if (log.values[i].kind == LoggedValue::Kind::input) inputs.push_back(static_cast<LogValue>(i));
  return inputs;
}

std::string said(const Decision& decision) {
  return decision ? "yes\n" : "no: " + std::string(decision.reason()) + "\n";
}

// The calls that are needed. Each number that a call gives is one that others may take: s0 of the
// first, s1 of the second.
std::string live_calls(const std::string& text) {
  const CallLog log = read(text);
  std::vector<NumberStep> numbers;
  for (const LoggedCall& call : log.calls)
    if (call.number >= 0) {
      NumberStep& step = numbers.emplace_back();
      step.id = static_cast<uint32_t>(call.number);
      step.item = call.number;
    }
  const Liveness live = find_live(log, log.outputs, numbers, {});
  std::string found;
  for (size_t i = 0; i < log.calls.size(); ++i)
    if (live.calls[i]) found += std::to_string(i) + " " + log.calls[i].op.str() + "\n";
  for (size_t i = 0; i < numbers.size(); ++i)
    if (live.numbers[i]) found += "number s" + std::to_string(numbers[i].id) + "\n";
  return found.empty() ? "nothing\n" : found;
}

std::string stages(const std::string& text) {
  const CallLog log = read(text);
  const Liveness live = find_live(log, log.outputs, {}, {});
  TrackedOutputs tracked;
  for (const LogValue output : log.outputs)
    if (log.is_tracked(output)) tracked.values.push_back(output);
  const StageStarts starts =
      find_stages(log, live.calls, log.outputs, tracked, find_called(log, live.calls));
  if (!starts.possible) return said(starts.possible);
  std::string found = "starts";
  for (const size_t start : starts.positions) found += " " + std::to_string(start);
  found += "\ncalled";
  for (const size_t start : starts.called) found += " " + std::to_string(start);
  return found + "\n";
}

TEST(LogAnalyses, Liveness) { expect_ir_cases(__FILE__, "liveness_test.ir", live_calls); }

TEST(LogAnalyses, Stages) { expect_ir_cases(__FILE__, "stages_test.ir", stages); }

// What is known of the contents of the first output.
std::string contents(const std::string& text) {
  const CallLog log = read(text);
  const LogValue value = log.outputs.at(0);
  std::string found;
  const auto say = [&](bool holds, const char* word) {
    if (holds) found += found.empty() ? word : " " + std::string(word);
  };
  say(is_single(log, value), "single");
  say(is_steady(log, value), "steady");
  say(is_fixed(log, value), "fixed");
  say(is_gamble(log, value), "gamble");
  say(is_check(log, value, true), "check");
  say(is_check(log, value, false), "check_of_none");
  return found.empty() ? "nothing\n" : found + "\n";
}

TEST(LogAnalyses, Contents) { expect_ir_cases(__FILE__, "contents_test.ir", contents); }

// What a pass from each output uses up of others, and which inputs it comes to.
std::string shared_history(const std::string& text) {
  const CallLog log = read(text);
  const std::vector<LogValue> inputs = inputs_of(log);
  const auto used_up = used_up_by(log, log.outputs);
  const auto reached = reached_by(log, log.outputs, inputs);
  std::string found;
  for (size_t i = 0; i < log.outputs.size(); ++i) {
    found += "%" + std::to_string(log.outputs[i]) + " uses up";
    for (size_t j = 0; j < log.outputs.size(); ++j)
      if (j != i && used_up[i][j]) found += " %" + std::to_string(log.outputs[j]);
    found += ", comes to";
    for (size_t k = 0; k < inputs.size(); ++k)
      if (reached[i][k]) found += " %" + std::to_string(inputs[k]);
    found += "\n";
  }
  return found;
}

TEST(LogAnalyses, SharedHistory) {
  expect_ir_cases(__FILE__, "shared_history_test.ir", shared_history);
}

TEST(LogAnalyses, Writes) {
  expect_ir_cases(__FILE__, "writes_test.ir", [](const std::string& text) {
    return writes_whole_tensors(read(text), 16) ? "whole\n" : "parts\n";
  });
}

TEST(LogAnalyses, Trainability) {
  expect_ir_cases(__FILE__, "trainability_test.ir", [](const std::string& text) {
    const CallLog log = read(text);
    return said(can_train(log, inputs_of(log), log.outputs));
  });
}

}  // namespace
}  // namespace smelt
