#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "diagnostics/log.h"
#include "passes/passes.h"

namespace smelt {
namespace {

void check_names(const std::set<std::string>& names) {
  std::string known;
  std::set<std::string> unknown = names;
  for (const PassInfo& pass : all_passes()) {
    unknown.erase(pass.name);
    known += (known.empty() ? "" : ", ") + std::string(pass.name);
  }
  if (unknown.empty()) return;
  throw Error("there is no pass named '" + *unknown.begin() +
              "' to disable; the passes are: " + known);
}

// Every pass has to leave a whole graph and to tell the truth about having changed it. Returns the
// hash.
uint64_t check_result(const Graph& graph, const PassInfo& pass, bool changed, uint64_t before) {
  try {
    if (changed) graph.verify();  // one that is the same as before is whole
  } catch (const InternalError& error) {
    throw InternalError("the pass " + std::string(pass.name) + " broke the graph: " + error.what());
  }
  const uint64_t after = graph.hash();
  SMELT_CHECK(changed == (before != after),
              "the pass " + std::string(pass.name) +
                  (changed ? " says that it changed the graph, which is the same as before"
                           : " changed the graph without saying so"));
  return after;
}

void report(const Graph& graph, const RecordEntry& entry) {
  if (!log_enabled(Log::passes)) return;
  char milliseconds[32];
  std::snprintf(milliseconds, sizeof milliseconds, "%.3f ms", entry.seconds * 1e3);
  std::string message = entry.name + ": " + entry.note + ", " + milliseconds;
  if (entry.changed && log_enabled(Log::graph)) message += "\n" + graph.str();
  log(Log::passes, message);
}

// Runs one pass on the graph of hash `before` (if passes are checked) and returns the new hash.
uint64_t run_checked(Graph& graph, const PassInfo& pass, const PassOptions& options, Record& record,
                     uint64_t before) {
  RecordEntry entry;
  entry.stage = "passes";
  entry.name = pass.name;
  const size_t nodes = graph.nodes.size();
  const auto start = std::chrono::steady_clock::now();
  entry.changed = pass.run(graph, options);
  entry.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  const uint64_t after = options.verify ? check_result(graph, pass, entry.changed, before) : 0;
  entry.note = std::to_string(nodes) + " -> " + std::to_string(graph.nodes.size()) + " nodes";
  report(graph, entry);
  record.entries.push_back(std::move(entry));
  return after;
}

}  // namespace

const std::vector<PassInfo>& all_passes() {
  static const std::vector<PassInfo> passes = {
#define SMELT_PASS(name, help) {#name, help, &(name)},
#include "passes/passes.def"
#undef SMELT_PASS
  };
  return passes;
}

void run_pass(Graph& graph, const PassInfo& pass, const PassOptions& options, Record& record) {
  run_checked(graph, pass, options, record, options.verify ? graph.hash() : 0);
}

void run_passes(Graph& graph, const PassOptions& options, Record& record) {
  check_names(options.disabled);
  uint64_t hash = options.verify ? graph.hash() : 0;
  for (const PassInfo& pass : all_passes()) {
    if (options.disabled.contains(pass.name)) {
      record.entries.push_back({.stage = "passes", .name = pass.name, .note = "disabled"});
    } else {
      hash = run_checked(graph, pass, options, record, hash);
    }
  }
}

}  // namespace smelt
