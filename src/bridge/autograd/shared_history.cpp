#include "bridge/autograd/shared_history.h"

#include <algorithm>
#include <unordered_map>

#include "capture/log/opaque_call.h"
#include "ops/history.h"

namespace smelt {
namespace {

// Not what makes a leaf of a tensor, registers a hook, or takes a tensor out of its graph.
bool makes_node(const LogItem& item) {
  if (item.op == &opaque_op()) return item.applies_function || item.function;
  return !ends_history(item.op->handle.schema().name());
}

// What a pass from an output comes to.
struct Behind {
  std::vector<bool> keepers;  // by item: its node, which keeps tensors
  std::vector<bool> values;   // by value
};

using Writers = std::unordered_map<int32_t, std::vector<size_t>>;  // items, by memory

Writers writers_in(const OpLog& log) {
  Writers writers;
  for (size_t i = 0; i < log.items().size(); ++i)
    for (const LogValue value : log.items()[i].written)
      if (value >= 0) writers[log.values()[value].memory].push_back(i);
  return writers;
}

// `perhaps`: also what may have come to be tracked by a write.
Behind behind(const OpLog& log, LogValue output, const Writers& writers, bool perhaps) {
  const std::vector<LoggedTensor>& values = log.values();
  std::vector<bool> seen(log.items().size());
  Behind behind{std::vector<bool>(log.items().size()), std::vector<bool>(values.size())};
  std::vector<LogValue> open{output};
  const auto visit = [&](size_t index) {
    if (index >= seen.size() || seen[index]) return;
    seen[index] = true;
    const LogItem& item = log.items()[index];
    const auto is_tracked = [&](LogValue value) {
      return value >= 0 && values[value].requires_grad;
    };
    if (std::ranges::none_of(item.results, is_tracked) &&
        std::ranges::none_of(item.written, is_tracked) && (!perhaps || item.written.empty()))
      return;
    bool takes_tracked = false;
    each_argument(item, [&](LogValue value) {
      takes_tracked = takes_tracked || is_tracked(value);
      if (makes_node(item) || item.op == &opaque_op()) open.push_back(value);
    });
    behind.keepers[index] =
        takes_tracked && makes_node(item) && keeps_tensors(item.op->handle.schema().name());
  };
  while (!open.empty()) {
    behind.values[open.back()] = true;
    const LoggedTensor& value = values[open.back()];
    open.pop_back();
    if (value.kind == LoggedTensor::Kind::result) visit(value.item);
    if (const auto known = writers.find(value.memory); known != writers.end())
      for (const size_t index : known->second) visit(index);
  }
  return behind;
}

}  // namespace

std::vector<std::vector<bool>> used_up_by(const OpLog& log, std::span<const LogValue> outputs) {
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

std::vector<std::vector<bool>> reached_by(const OpLog& log, std::span<const LogValue> outputs,
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
