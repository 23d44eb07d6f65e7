// Analyses of logs as text (base/ir_test.h): a log, and what is found.
#include "base/ir_test.h"

#include "log/call_log.h"
#include "log/liveness.h"
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
