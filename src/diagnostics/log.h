// SMELT_LOG=graph,passes,...: what smelt tells about its work, on standard error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace smelt {

// One row per category; the environment variable takes the names. See log.cpp for what each prints.
enum class Log : uint8_t {
  record,
  refusals,
  shapes,
  graph,
  passes,
  schedule,
  code,
  program,
  memory,
  perf,
  breaks,
  guards,
  recompiles
};

// True when SMELT_LOG names the category (or "all"). An unknown name there is reported once, with
// the list of those that exist.
bool log_enabled(Log category);
// Replaces what the environment said; an Error lists the valid names if one is unknown.
void set_log(std::string_view categories);
void log(Log category, const std::string& message);
// Told whatever SMELT_LOG says; the same message once in a process.
void warn_once(const std::string& message);

}  // namespace smelt
