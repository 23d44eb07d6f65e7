#include "log/shared_history.h"

#include <algorithm>
#include <unordered_map>

#include "log/own_ops.h"
#include "ops/history.h"

namespace smelt {
namespace {

// Not what makes a leaf of a tensor, registers a hook, or takes a tensor out of its graph.
bool makes_node(const LoggedCall& call) {
  return call.op == own_ops::kOpaqueCall ? call.calls_back : !ends_history(call.op);
}

// A write into a view: PyTorch's node for it is used up by a pass, whatever the op.
bool writes_view(const CallLog& log, const LoggedCall& call) {
  if (call.written.empty()) return false;
  const LogValue target = first_argument(call);
  const int32_t memory = target < 0 ? 0 : log.value(target).memory;
  for (LogValue before = 0; memory != 0 && before < target; ++before)
    if (log.value(before).memory == memory) return true;
  return false;
}

// What a pass from an output comes to.
struct Behind {
  std::vector<bool> keepers;  // by call: its node, which keeps tensors
  std::vector<bool> values;   // by value
};

using Writers = std::unordered_map<int32_t, std::vector<size_t>>;  // calls, by memory

Writers writers_in(const CallLog& log) {
  Writers writers;
  for (size_t i = 0; i < log.calls.size(); ++i)
    for (const LogValue value : log.calls[i].written) writers[log.value(value).memory].push_back(i);
  return writers;
}

// `perhaps`: also what may have come to be tracked by a write.
Behind behind(const CallLog& log, LogValue output, const Writers& writers, bool perhaps) {
  std::vector<bool> seen(log.calls.size());
  Behind behind{std::vector<bool>(log.calls.size()), std::vector<bool>(log.values.size())};
  std::vector<LogValue> open{output};
  const auto visit = [&](size_t index) {
    if (seen[index]) return;
    seen[index] = true;
    const LoggedCall& call = log.calls[index];
    const auto is_tracked = [&](LogValue value) {
      return value >= 0 && log.value(value).requires_grad;
    };
    if (std::ranges::none_of(call.results, is_tracked) &&
        std::ranges::none_of(call.written, is_tracked) && (!perhaps || call.written.empty()))
      return;
    bool takes_tracked = false;
    each_argument(call, [&](LogValue value) {
      takes_tracked = takes_tracked || is_tracked(value);
      if (makes_node(call) || call.op == own_ops::kOpaqueCall) open.push_back(value);
    });
    behind.keepers[index] =
        takes_tracked && makes_node(call) && (keeps_tensors(call.op) || writes_view(log, call));
  };
  while (!open.empty()) {
    behind.values[open.back()] = true;
    const LoggedValue& value = log.value(open.back());
    open.pop_back();
    if (value.call >= 0) visit(static_cast<size_t>(value.call));
    if (const auto known = writers.find(value.memory); known != writers.end())
      for (const size_t index : known->second) visit(index);
  }
  return behind;
}

}  // namespace

std::vector<std::vector<bool>> used_up_by(const CallLog& log, std::span<const LogValue> outputs) {
  const Writers writers = writers_in(log);
  std::vector<std::vector<bool>> keepers, used_up;
  for (const LogValue output : outputs)
    keepers.push_back(behind(log, output, writers, false).keepers);
  for (const std::vector<bool>& a : keepers) {
    std::vector<bool>& row = used_up.emplace_back();
    for (const std::vector<bool>& b : keepers) {
      bool share = false;
      for (size_t i = 0; i < a.size() && !share; ++i) share = a[i] && b[i];
      row.push_back(share);
    }
  }
  return used_up;
}

std::vector<std::vector<bool>> reached_by(const CallLog& log, std::span<const LogValue> outputs,
                                          std::span<const LogValue> inputs) {
  const Writers writers = writers_in(log);
  std::vector<std::vector<bool>> reached;
  for (const LogValue output : outputs) {
    const std::vector<bool> values = behind(log, output, writers, true).values;
    std::vector<bool>& row = reached.emplace_back();
    for (const LogValue input : inputs) row.push_back(values[input]);
  }
  return reached;
}

}  // namespace smelt
