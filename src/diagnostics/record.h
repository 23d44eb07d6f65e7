// What every stage decided and how long it took; explain, logs and reports read it.
#pragma once

#include <string>
#include <vector>

namespace smelt {

struct RecordEntry {
  std::string stage;  // "capture", "passes", "compile"
  std::string name;   // "remove_dead"
  double seconds = 0;
  bool changed = false;
  std::string note;  // a sentence, may be empty
};

struct Record {
  std::vector<RecordEntry> entries;
  double seconds(const std::string& stage) const;
  std::string str() const;  // a table
};

}  // namespace smelt
