#include "ops/facts.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "base/error.h"
#include "ops/facts_table.h"
#include "ops/rows.h"

namespace smelt {
namespace {

// "aten::index_add_.out" -> "aten::index_add_"
std::string_view without_overload(std::string_view name) { return name.substr(0, name.find('.')); }

// One name for all forms: "aten::index_add_" -> "aten::index_add"
std::string_view form_of(std::string_view name) {
  name = without_overload(name);
  return name.ends_with('_') ? name.substr(0, name.size() - 1) : name;
}

// What the forms of an op have in common.
struct Shared {
  bool may_fail = false, names_places = false, keeps_first_shape = false;

  void add(const OpFacts& facts) {
    may_fail |= facts.may_fail;
    names_places |= facts.names_places;
    keeps_first_shape |= facts.keeps_first_shape;
  }
};

class FactsIndex {
 public:
  FactsIndex() {
    for (const OpRow& row : all_rows())
      if (row.facts != OpFacts()) add(row.name, row.facts);
    for (const FactsRow& row : facts_table()) {
      add(row.name.ends_with(".default") ? without_overload(row.name) : row.name, row.facts,
          row.name.find('.') == row.name.npos);
    }
  }

  OpFacts find(const std::string& name) const {
    OpFacts facts;
    if (const auto own = exact_.find(name); own != exact_.end())
      facts = own->second;
    else if (const auto any = overloads_.find(without_overload(name)); any != overloads_.end())
      facts = any->second;
    if (const auto shared = shared_.find(form_of(name)); shared != shared_.end()) {
      facts.may_fail |= shared->second.may_fail;
      facts.names_places |= shared->second.names_places;
      facts.keeps_first_shape |= shared->second.keeps_first_shape;
    }
    return facts;
  }

 private:
  void add(std::string_view name, const OpFacts& facts, bool of_all_overloads = false) {
    const bool first = (of_all_overloads ? overloads_ : exact_).emplace(name, facts).second;
    SMELT_CHECK(first, "two rows with facts for " + std::string(name));
    shared_[form_of(name)].add(facts);
  }

  std::unordered_map<std::string_view, OpFacts> exact_, overloads_;
  std::unordered_map<std::string_view, Shared> shared_;
};

}  // namespace

const OpFacts& facts_of(OpName op) {
  static const FactsIndex index;
  static std::shared_mutex mutex;
  static std::unordered_map<OpName, OpFacts> known;
  {
    std::shared_lock lock(mutex);
    if (const auto found = known.find(op); found != known.end()) return found->second;
  }
  const OpFacts facts = index.find(op.str());
  std::unique_lock lock(mutex);
  return known.try_emplace(op, facts).first->second;
}

Library library_of(OpName op) {
  const std::string& name = op.str();
  if (name.starts_with("aten::")) return Library::aten;
  if (name.starts_with("mkldnn::")) return Library::mkldnn;
  if (name.starts_with("smelt::")) return Library::own;
  static constexpr std::string_view kKnown[] = {
      "prims::", "onednn::", "mkl::", "quantized::", "torch_nn::"};
  const bool is_known = std::ranges::any_of(
      kKnown, [&](std::string_view library) { return name.starts_with(library); });
  return is_known ? Library::known : Library::foreign;
}

std::string_view special_layout(OpName op) {
  if (op.str().find("sparse") != std::string::npos) return "Sparse";
  if (op.str().find("quantize") != std::string::npos) return "QInt8";
  return {};
}

}  // namespace smelt
