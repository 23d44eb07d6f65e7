// Where log lines go: to standard error, or to a function that a program gives.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace smelt {

// Called with the category and the message, from whichever thread logs.
using LogSink = std::function<void(std::string_view category, const std::string& message)>;

// The function takes all lines from now on; an empty one gives them back to standard error.
void set_log_sink(LogSink sink);
// The categories that are on, as set_log() takes them.
std::string enabled_log();

}  // namespace smelt
