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

// By item: a pass from the output comes through its node, which keeps tensors.
std::vector<bool> items_behind(const OpLog& log, LogValue output,
                               const std::unordered_map<int32_t, std::vector<size_t>>& writers) {
  const std::vector<LoggedTensor>& values = log.values();
  std::vector<bool> seen(log.items().size()), behind(log.items().size());
  std::vector<LogValue> open{output};
  const auto visit = [&](size_t index) {
    if (index >= seen.size() || seen[index]) return;
    seen[index] = true;
    const LogItem& item = log.items()[index];
    const auto is_tracked = [&](LogValue value) {
      return value >= 0 && values[value].requires_grad;
    };
    if (std::ranges::none_of(item.results, is_tracked) &&
        std::ranges::none_of(item.written, is_tracked))
      return;
    bool takes_tracked = false;
    each_argument(item, [&](LogValue value) {
      takes_tracked = takes_tracked || is_tracked(value);
      if (makes_node(item) || item.op == &opaque_op()) open.push_back(value);
    });
    behind[index] =
        takes_tracked && makes_node(item) && keeps_tensors(item.op->handle.schema().name());
  };
  while (!open.empty()) {
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
  std::unordered_map<int32_t, std::vector<size_t>> writers;  // by memory
  for (size_t i = 0; i < log.items().size(); ++i)
    for (const LogValue value : log.items()[i].written)
      if (value >= 0) writers[log.values()[value].memory].push_back(i);
  std::vector<std::vector<bool>> behind, used_up;
  for (const LogValue output : outputs) behind.push_back(items_behind(log, output, writers));
  for (const std::vector<bool>& a : behind) {
    std::vector<bool>& row = used_up.emplace_back();
    for (const std::vector<bool>& b : behind) {
      bool share = false;
      for (size_t i = 0; i < a.size() && !share; ++i) share = a[i] && b[i];
      row.push_back(share);
    }
  }
  return used_up;
}

}  // namespace smelt
