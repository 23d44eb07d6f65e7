#include "diagnostics/log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>

#include "base/error.h"
#include "diagnostics/log_sink.h"

namespace smelt {
namespace {

struct LogRow {
  std::string_view name;
  std::string_view help;
};

// In the order of enum Log.
constexpr auto kRows = std::to_array<LogRow>({
    {"record", "each op as it is written down"},
    {"refusals", "why a program was not recorded"},
    {"shapes", "which tier typed each op's results, and the guards that were made"},
    {"graph", "the graph as recorded and as compiled"},
    {"passes", "the graph after each pass that changed it"},
    {"schedule", "which ops share a kernel, and which are called"},
    {"code", "the loops of each kernel"},
    {"program", "the program that runs"},
    {"memory", "which tensors of a program are alive when it takes the most memory"},
    {"perf", "how long each stage took"},
    {"breaks", "where graphs end, and why"},
    {"guards", "what each compiled piece of a function depends on"},
    {"recompiles", "which guard failed when a function is compiled again"},
});

constexpr uint32_t kAll = (1u << kRows.size()) - 1;

std::string known_names() {
  std::string text;
  for (const LogRow& row : kRows)
    text += "\n  " + std::string(row.name) + ": " + std::string(row.help);
  return text + "\n  all: everything";
}

// The categories named in a comma-separated list, as bits; what is unknown is put in `unknown`.
uint32_t bits_of(std::string_view categories, std::string& unknown) {
  uint32_t bits = 0;
  while (!categories.empty()) {
    std::string_view name = categories.substr(0, categories.find(','));
    categories.remove_prefix(std::min(name.size() + 1, categories.size()));
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    if (name.empty()) continue;
    uint32_t bit = name == "all" ? kAll : 0;
    for (size_t i = 0; i < kRows.size(); ++i) {
      if (kRows[i].name == name) bit = 1u << i;
    }
    if (!bit) unknown = name;
    bits |= bit;
  }
  return bits;
}

std::string unknown_category(const std::string& name) {
  return "SMELT_LOG has no category '" + name + "'; the categories are:" + known_names();
}

std::mutex sink_mutex;
std::shared_ptr<const LogSink> given_sink;

void write_line(std::string_view category, const std::string& message) {
  std::shared_ptr<const LogSink> sink;
  {
    const std::scoped_lock lock(sink_mutex);
    sink = given_sink;
  }
  if (sink) return (*sink)(category, message);
  static std::mutex mutex;
  std::string line = "smelt[" + std::string(category) + "] " + message;
  if (!line.ends_with('\n')) line += '\n';
  std::scoped_lock lock(mutex);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

uint32_t bits_of_environment() {
  const char* text = std::getenv("SMELT_LOG");
  if (!text) return 0;
  std::string unknown;
  uint32_t bits = bits_of(text, unknown);
  // A misspelt name must not stop the user's program: it is told, not thrown.
  if (!unknown.empty()) write_line("log", unknown_category(unknown));
  return bits;
}

std::atomic<uint32_t>& enabled_bits() {
  static std::atomic<uint32_t> bits = bits_of_environment();
  return bits;
}

}  // namespace

bool log_enabled(Log category) {
  return enabled_bits().load(std::memory_order_relaxed) >> static_cast<uint32_t>(category) & 1;
}

void set_log(std::string_view categories) {
  std::string unknown;
  uint32_t bits = bits_of(categories, unknown);
  if (!unknown.empty()) throw Error(unknown_category(unknown));
  enabled_bits().store(bits, std::memory_order_relaxed);
}

void set_log_sink(LogSink sink) {
  auto given = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  const std::scoped_lock lock(sink_mutex);
  given_sink.swap(given);  // the old one goes when the lock has gone
}

std::string enabled_log() {
  std::string text;
  for (size_t i = 0; i < kRows.size(); ++i)
    if (log_enabled(static_cast<Log>(i))) text += std::string(kRows[i].name) + ",";
  return text;
}

void log(Log category, const std::string& message) {
  if (log_enabled(category)) write_line(kRows[static_cast<size_t>(category)].name, message);
}

void warn_once(const std::string& message) {
  static std::mutex mutex;
  static std::set<std::string> told;
  {
    std::scoped_lock lock(mutex);
    if (!told.insert(message).second) return;
  }
  write_line("warning", message);
}

}  // namespace smelt
