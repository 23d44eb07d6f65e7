#include "diagnostics/record.h"

#include <algorithm>
#include <cstdio>

namespace smelt {
namespace {

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f ms", seconds * 1e3);
  return text;
}

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

}  // namespace

double Record::seconds(const std::string& stage) const {
  double sum = 0;
  for (const RecordEntry& entry : entries) {
    if (entry.stage == stage) sum += entry.seconds;
  }
  return sum;
}

std::string Record::str() const {
  size_t stage_width = 0, name_width = 0, time_width = 0;
  for (const RecordEntry& entry : entries) {
    stage_width = std::max(stage_width, entry.stage.size());
    name_width = std::max(name_width, entry.name.size());
    time_width = std::max(time_width, milliseconds(entry.seconds).size());
  }
  std::string text;
  for (const RecordEntry& entry : entries) {
    std::string time = milliseconds(entry.seconds);
    std::string line = padded(entry.stage, stage_width) + "  " + padded(entry.name, name_width) +
                       "  " + std::string(time_width - time.size(), ' ') + time + "  " +
                       (entry.changed ? "changed" : "-      ");
    if (!entry.note.empty()) line += "  " + entry.note;
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace smelt
