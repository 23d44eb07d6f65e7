#include "bridge/shared_history.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace smelt {
namespace {

// Ops whose nodes keep no tensor: a second pass through them is as good as the first. One that is
// missing here is taken for one that does.
bool keeps_tensors(const LogItem& item) {
  static constexpr std::string_view kPlain[] = {"aten::add",
                                                "aten::add_",
                                                "aten::sub",
                                                "aten::sub_",
                                                "aten::neg",
                                                "aten::sum",
                                                "aten::mean",
                                                "aten::view",
                                                "aten::reshape",
                                                "aten::flatten",
                                                "aten::t",
                                                "aten::transpose",
                                                "aten::permute",
                                                "aten::expand",
                                                "aten::expand_as",
                                                "aten::squeeze",
                                                "aten::unsqueeze",
                                                "aten::slice",
                                                "aten::select",
                                                "aten::narrow",
                                                "aten::split",
                                                "aten::chunk",
                                                "aten::unbind",
                                                "aten::cat",
                                                "aten::stack",
                                                "aten::clone",
                                                "aten::alias",
                                                "aten::to",
                                                "aten::_to_copy",
                                                "aten::contiguous",
                                                "aten::unflatten",
                                                "aten::movedim",
                                                "aten::view_as",
                                                "aten::float",
                                                "aten::split_with_sizes"};
  return std::ranges::find(kPlain, item.op->handle.schema().name()) == std::end(kPlain);
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
    behind[index] = keeps_tensors(item);
    each_argument(item, [&](LogValue value) { open.push_back(value); });
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
