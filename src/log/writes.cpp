#include "log/writes.h"

#include <algorithm>
#include <unordered_map>

namespace smelt {

bool writes_whole_tensors(const CallLog& log, int64_t few) {
  std::unordered_map<int32_t, int64_t> left;  // by memory: elements that are not written
  for (const LoggedValue& value : log.values) {
    if (value.kind != LoggedValue::Kind::input) continue;
    int64_t& most = left[value.memory];
    most = std::max(most, elements_of(value).value_or(0));
  }
  std::vector<int32_t> written;
  for (const LoggedCall& call : log.calls)
    for (const LogValue id : call.written) {
      const int32_t memory = log.value(id).memory;
      const auto found = left.find(memory);
      if (found == left.end()) continue;
      if (memory == 0) return false;
      found->second -= elements_of(log.value(id)).value_or(0);
      written.push_back(memory);
    }
  return std::ranges::none_of(written, [&](int32_t memory) { return left[memory] > few; });
}

}  // namespace smelt
