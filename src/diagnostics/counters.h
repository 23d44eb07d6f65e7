// Process-wide counters behind smelt.stats(). One row per counter in counters.def.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace smelt {

enum class Counter : uint8_t {
#define SMELT_COUNTER(name, help) name,
#include "diagnostics/counters.def"
#undef SMELT_COUNTER
};

void count(Counter counter, int64_t by = 1);
int64_t read(Counter counter);
void reset_counters();

struct CounterRow {
  std::string name;
  std::string help;
  int64_t value;
};
std::vector<CounterRow> all_counters();

}  // namespace smelt
