#include "log/liveness.h"

#include <algorithm>
#include <unordered_map>

#include "ops/facts.h"

namespace smelt {
namespace {

// Which numbers are needed, and of which calls that give one.
class NeededNumbers {
 public:
  NeededNumbers(const CallLog& log, std::span<const NumberStep> steps)
      : steps_(steps), needed_(steps.size()) {
    int32_t given = 0;
    for (const LoggedCall& call : log.calls) given = std::max(given, call.number + 1);
    for (size_t i = 0; i < steps.size(); ++i) {
      place_.emplace(steps[i].id, static_cast<uint32_t>(i));
      given = std::max(given, steps[i].item + 1);
    }
    is_read_.resize(static_cast<size_t>(given));
  }

  void need(uint32_t number) {
    if (needed_[number]) return;
    needed_[number] = true;
    const NumberStep& wanted = steps_[number];
    if (wanted.item >= 0) {
      is_read_[wanted.item] = true;
      return;
    }
    for (const NumberStep::Operand& operand : {wanted.a, wanted.b})
      if (operand.from == NumberStep::Operand::From::number) need(operand.index);
  }
  void need_by_id(uint32_t id) {
    if (const auto found = place_.find(id); found != place_.end()) need(found->second);
  }
  bool reads(int32_t given) const { return is_read_[given]; }
  std::vector<bool> take() { return std::move(needed_); }

 private:
  std::span<const NumberStep> steps_;
  std::unordered_map<uint32_t, uint32_t> place_;  // by NumberStep::id
  std::vector<bool> needed_;                      // as steps_
  std::vector<bool> is_read_;                     // by LoggedCall::number
};

}  // namespace

Liveness find_live(const CallLog& log, std::span<const LogValue> outputs,
                   std::span<const NumberStep> numbers, std::span<const uint32_t> wanted) {
  const InputMemory input_memory(log);
  std::vector<bool> needed(log.values.size());
  std::vector<bool> needed_memory;
  const auto need = [&](LogValue value) {
    if (value < 0) return;
    needed[value] = true;
    const auto memory = static_cast<size_t>(log.value(value).memory);
    if (memory >= needed_memory.size()) needed_memory.resize(memory + 1);
    needed_memory[memory] = true;
  };
  std::ranges::for_each(outputs, need);
  NeededNumbers needed_numbers(log, numbers);
  for (const uint32_t number : wanted) needed_numbers.need(number);
  Liveness live{std::vector<bool>(log.calls.size()), {}};
  for (size_t i = log.calls.size(); i-- > 0;) {
    const LoggedCall& call = log.calls[i];
    bool is_live = call.random || call.has_effects || call.effect || call.sized ||
                   library_of(call.op) != Library::aten;
    for (const LogValue value : call.results)
      is_live = is_live || (value >= 0 && needed[value] && !is_argument(call, value));
    for (const LogValue value : call.written) {
      const int32_t memory = log.value(value).memory;
      is_live = is_live || input_memory.contains(memory) ||
                (static_cast<size_t>(memory) < needed_memory.size() && needed_memory[memory]);
    }
    if (call.number >= 0)
      is_live = call.expected || call.counts || needed_numbers.reads(call.number);
    if (!is_live) continue;
    live.calls[i] = true;
    for (const TakenNumber& number : call.takes) needed_numbers.need_by_id(number.id);
    each_argument(call, need);
  }
  live.numbers = needed_numbers.take();
  return live;
}

}  // namespace smelt
