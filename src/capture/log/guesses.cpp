// What a log takes for granted although contents decide it: the size of what a mask selects, a
// number that C code reads to index with. The run that wrote it down knows it, each later run
// checks it, and a run for which it does not hold is none (Mispredicted). It is guessed only where
// whole numbers decide (positions, labels, padding), which are most often of the same kind in each
// call; what comes out of floating-point arithmetic is another in each.
#include <algorithm>

#include "capture/log/op_log.h"

namespace smelt {
namespace {

bool is_mask(c10::ScalarType type) { return type == c10::kBool || type == c10::kByte; }

}  // namespace

bool OpLog::is_steady_number(int32_t number) const {
  const auto item = std::ranges::find(items_, number, &LogItem::number);
  return item != items_.end() && is_steady(item->slots.at(0).values.at(0));
}

bool OpLog::guess_sizes(const LogItem& item) {
  if (item.has_effects || has_effects()) return false;  // a wrong guess would call it again
  const int deciding = item.op->facts.sized_by_argument;
  const bool masks_only = item.op->facts.by_masks_only;
  for (const LogSlot& slot : item.slots) {
    if (deciding >= 0 && slot.argument != static_cast<uint32_t>(deciding)) continue;
    for (const LogValue value : slot.values)
      if (value >= 0 && !(masks_only && !is_mask(values_[value].dtype)) && !is_steady(value))
        return false;
  }
  return keeps_numbers_ && may_guess_ && may_guess_();
}

bool OpLog::expect_numbers(int32_t first) {
  if (has_effects()) return false;
  for (LogItem& item : items_) {
    if (item.number < first) continue;
    const LogValue source = item.slots.at(0).values.at(0);
    if (is_fixed(source)) continue;
    if (!is_steady(source) || !may_guess_ || !may_guess_()) return false;
    item.expected = true;
  }
  return true;
}

}  // namespace smelt
