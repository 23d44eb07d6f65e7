#include "diagnostics/counters.h"

#include <array>

namespace smelt {
namespace {

struct CounterText {
  const char* name;
  const char* help;
};

constexpr auto kTexts = std::to_array<CounterText>({
#define SMELT_COUNTER(name, help) {#name, help},
#include "diagnostics/counters.def"
#undef SMELT_COUNTER
});

// Relaxed everywhere: counters order nothing, they only add up.
std::array<std::atomic<int64_t>, kTexts.size()> counts;

}  // namespace

void count(Counter counter, int64_t by) {
  counts[static_cast<size_t>(counter)].fetch_add(by, std::memory_order_relaxed);
}

int64_t read(Counter counter) {
  return counts[static_cast<size_t>(counter)].load(std::memory_order_relaxed);
}

void reset_counters() {
  for (auto& value : counts) value.store(0, std::memory_order_relaxed);
}

std::vector<CounterRow> all_counters() {
  std::vector<CounterRow> rows;
  rows.reserve(kTexts.size());
  for (size_t i = 0; i < kTexts.size(); ++i) {
    rows.push_back({kTexts[i].name, kTexts[i].help, read(static_cast<Counter>(i))});
  }
  return rows;
}

}  // namespace smelt
