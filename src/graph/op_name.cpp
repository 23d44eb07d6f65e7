#include "graph/op_name.h"

#include <mutex>
#include <unordered_set>

namespace smelt {
namespace {

// Leaked on purpose: names are used by other objects with static storage until the process ends.
struct NameTable {
  std::mutex mutex;
  std::unordered_set<std::string> names;  // never moves its elements
};

NameTable& name_table() {
  static NameTable* table = new NameTable;
  return *table;
}

}  // namespace

OpName::OpName(std::string_view name) {
  NameTable& table = name_table();
  std::scoped_lock lock(table.mutex);
  name_ = &*table.names.emplace(name).first;
}

}  // namespace smelt
