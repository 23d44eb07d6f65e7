#include "log/stages.h"

#include <algorithm>
#include <optional>

#include "log/own_ops.h"

namespace smelt {
namespace {

// Positions of which one has to be a stage's start: behind the op that makes an output what it is,
// up to the first that makes something of it on the way to another output.
struct Interval {
  size_t first, last;
};

class DependentOutputs {
 public:
  DependentOutputs(const CallLog& log, std::span<const LogValue> tracked)
      : log_(log), tracked_(tracked.begin(), tracked.end()) {}

  std::vector<Interval> intervals() const {
    std::vector<Interval> found;
    for (LogValue output : tracked_) {
      if (tracked_.size() < 2) break;
      const size_t ready = ready_at(output);
      if (const std::optional<size_t> reader = first_reader(output, ready))
        found.push_back({ready, *reader});
    }
    for (size_t start : recomputed()) found.push_back({start, start});
    return found;
  }

  // Where a piece that its backward computes again begins, or has ended.
  std::vector<size_t> recomputed() const {
    std::vector<size_t> starts;
    const std::vector<LoggedCall>& items = log_.calls;
    for (size_t i = 1; !tracked_.empty() && i < items.size(); ++i)
      if (items[i].recomputed != items[i - 1].recomputed) starts.push_back(i);
    return starts;
  }

 private:
  size_t ready_at(LogValue output) const {
    const LoggedValue& known = log_.values[output];
    auto ready = static_cast<size_t>(known.call + 1);
    for (size_t i = ready; i < log_.calls.size(); ++i) {
      const LoggedCall& item = log_.calls[i];
      for (LogValue written : item.written)
        if (log_.values[written].memory == known.memory) ready = i + 1;
      // A leaf by requires_grad_(): a stage that took it as an input would set nothing.
      if (item.op == own_ops::kRequireGrad)
        each_argument(item, [&](LogValue value) {
          if (value == output) ready = i + 1;
        });
    }
    return ready;
  }

  // Of those that another output is computed from.
  std::optional<size_t> first_reader(LogValue output, size_t ready) const {
    std::vector<bool> reached(log_.values.size());
    reached[output] = true;
    // Behind a change, views that were made before it are computed from what was changed.
    const LoggedValue& known = log_.values[output];
    if (ready > static_cast<size_t>(known.call + 1))
      for (size_t other = 0; other < reached.size(); ++other)
        if (log_.values[other].memory == known.memory &&
            log_.values[other].call < static_cast<int32_t>(ready))
          reached[other] = true;
    std::optional<size_t> reader;
    for (size_t i = ready; i < log_.calls.size(); ++i) {
      const LoggedCall& item = log_.calls[i];
      if (!log_.ambients[item.ambient].grad) continue;
      bool reads = false;
      each_argument(item, [&](LogValue value) { reads = reads || reached[value]; });
      if (!reads) continue;
      bool leads_on = false;
      const auto reach = [&](LogValue value) {
        if (!log_.is_tracked(value)) return;
        reached[value] = leads_on = true;
      };
      std::ranges::for_each(item.results, reach);
      std::ranges::for_each(item.written, reach);
      if (leads_on && !reader) reader = i;
    }
    const bool is_needed = std::ranges::any_of(
        tracked_, [&](LogValue other) { return other != output && reached[other]; });
    return is_needed ? reader : std::nullopt;
  }

  const CallLog& log_;
  std::vector<LogValue> tracked_;
};

// Outputs on one memory: the ops by which they are views of what was made there first.
class SharedOutputs {
 public:
  SharedOutputs(const CallLog& log, std::span<const LogValue> outputs)
      : log_(log), input_memory_(log) {
    std::vector<LogValue> own(outputs.begin(), outputs.end());
    std::erase_if(own, [&](LogValue output) {
      return output < 0 || log.values[output].kind == LoggedValue::Kind::input;
    });
    for (size_t i = 0; i < own.size(); ++i) {
      const auto shares = [&](LogValue other) { return memory_of(other) == memory_of(own[i]); };
      if (std::ranges::count_if(own, shares) > 1) add(own[i]);
    }
  }

  bool any() const { return any_; }
  bool are_views() const { return are_views_; }
  const std::vector<size_t>& views() const { return views_; }

 private:
  int32_t memory_of(LogValue value) const { return log_.values[value].memory; }

  void add(LogValue output) {
    any_ = true;
    are_views_ = are_views_ && !input_memory_.contains(memory_of(output)) && follow(output);
  }

  // Back to the op that made the memory. What is written into it later would have to be seen by
  // all.
  bool follow(LogValue value) {
    while (true) {
      const LoggedValue& known = log_.values[value];
      if (known.kind != LoggedValue::Kind::result || known.inner) return false;
      const LoggedCall& item = log_.calls[known.call];
      LogValue source = -1;
      each_argument(item, [&](LogValue argument) {
        if (memory_of(argument) == known.memory) source = argument;
      });
      if (source < 0) return true;
      if (!item.written.empty() || is_written_behind(known.memory, known.call)) return false;
      views_.push_back(known.call);
      value = source;
    }
  }

  bool is_written_behind(int32_t memory, size_t position) const {
    for (size_t i = position; i < log_.calls.size(); ++i)
      for (LogValue written : log_.calls[i].written)
        if (memory_of(written) == memory) return true;
    return false;
  }

  const CallLog& log_;
  const InputMemory input_memory_;
  bool any_ = false, are_views_ = true;
  std::vector<size_t> views_;  // calls
};

// Of a long way some are looked at.
std::optional<size_t> cheapest(const Lifetimes& lifetimes, Interval interval) {
  constexpr size_t kLooks = 64;
  if (interval.first > interval.last) return std::nullopt;
  std::optional<size_t> best;
  Lifetimes::Cost least;
  const size_t step = (interval.last - interval.first) / kLooks + 1;
  for (size_t position = interval.first; position <= interval.last; position += step) {
    const std::optional<Lifetimes::Cost> cost = lifetimes.cost(position);
    if (!cost || (best && !(*cost < least))) continue;
    best = position;
    least = *cost;
  }
  return best;
}

// Each stage would get one of its own.
bool writes_constant(const CallLog& log) {
  std::vector<int32_t> memories;
  for (const LoggedValue& value : log.values)
    if (value.kind == LoggedValue::Kind::constant) memories.push_back(value.memory);
  return std::ranges::any_of(log.calls, [&](const LoggedCall& item) {
    return std::ranges::any_of(item.written, [&](LogValue value) {
      return std::ranges::find(memories, log.values[value].memory) != memories.end();
    });
  });
}

// Behind each other, none of which overlaps.
void sort_and_join(std::vector<CalledRange>& ranges) {
  std::ranges::sort(ranges, {}, &CalledRange::first);
  std::vector<CalledRange> joined;
  for (const CalledRange& range : ranges) {
    if (!joined.empty() && range.first < joined.back().end)
      joined.back().end = std::max(joined.back().end, range.end);
    else
      joined.push_back(range);
  }
  ranges = std::move(joined);
}

// A tensor that one stage makes, and reads, and a later one changes: the first may have kept it for
// its backward pass.
bool changes_kept(const CallLog& log, const std::vector<bool>& live,
                  const std::vector<size_t>& starts, const std::vector<CalledRange>& called) {
  const InputMemory input_memory(log);
  const auto is_called = [&](size_t item) {
    return std::ranges::any_of(called, [item](const CalledRange& range) {
      return range.first <= item && item < range.end;
    });
  };
  const auto reads = [&](const LoggedCall& item, int32_t memory) {
    bool found = false;
    each_argument(item,
                  [&](LogValue value) { found = found || log.values[value].memory == memory; });
    return found;
  };
  for (size_t w = 0; w < log.calls.size(); ++w) {
    if (!live[w] || starts.empty() || w < starts.front()) continue;
    const size_t start = *std::prev(std::ranges::upper_bound(starts, w));
    for (const LogValue written : log.calls[w].written) {
      const int32_t memory = log.values[written].memory;
      if (input_memory.contains(memory)) continue;
      for (size_t i = 0; i < start; ++i)
        if (live[i] && !is_called(i) && reads(log.calls[i], memory)) return true;
    }
  }
  return false;
}

// What the log expects is checked by the first stage, before anything is changed. Where sizes are
// counted, numbers are read on the way, and whoever makes the stages sees to it that none before
// changes anything.
size_t behind_numbers(const CallLog& log, const std::vector<bool>& live) {
  if (counts(log)) return 0;
  size_t behind = 0;
  for (size_t i = 0; i < log.calls.size(); ++i)
    if (live[i] &&
        (log.calls[i].number >= 0 || log.calls[i].sized || log.calls[i].op == own_ops::kExpect))
      behind = i + 1;
  return behind;
}

}  // namespace

Lifetimes::Lifetimes(const CallLog& log, const std::vector<bool>& live)
    : log_(log), last_read_(log.values.size(), 0), last_write_(log.values.size(), 0) {
  for (size_t i = 0; i < log.calls.size(); ++i) {
    if (!live[i]) continue;
    each_argument(log.calls[i], [&](LogValue value) { last_read_[value] = i; });
    for (LogValue value : log.calls[i].written) last_write_[value] = i;
  }
}

std::optional<Lifetimes::Cost> Lifetimes::cost(size_t position) const {
  Cost cost;
  std::vector<int32_t> memories;
  for (size_t id = 0; id < log_.values.size(); ++id) {
    const LoggedValue& value = log_.values[id];
    const auto known = static_cast<LogValue>(id);
    if (value.kind != LoggedValue::Kind::result || value.inner ||
        value.call >= static_cast<int32_t>(position) || !is_read_behind(known, position))
      continue;
    if (value.dynamic) continue;  // called ops hand it to each other
    const std::optional<int64_t> elements = elements_of(value);
    if (!elements) return std::nullopt;
    const bool shares = std::ranges::find(memories, value.memory) != memories.end();
    if (shares || last_write_[known] >= position) ++cost.trouble;
    memories.push_back(value.memory);
    cost.bytes += *elements * bytes_of(value.type->dtype);
  }
  return cost;
}

bool counts(const CallLog& log) {
  return std::ranges::any_of(log.calls, [](const LoggedCall& call) { return call.counts; });
}

std::vector<CalledRange> find_called(const CallLog& log, const std::vector<bool>& live) {
  constexpr size_t kFewOps = 4;  // between two: a stage of their own is not worth it
  const bool reads_apart = counts(log);
  std::vector<CalledRange> found;
  size_t since = 0;  // ops behind the last of them
  for (size_t i = 0; i < log.calls.size(); ++i) {
    const LoggedCall& item = log.calls[i];
    if (!live[i]) continue;
    const bool is_apart =
        item.counts || (reads_apart && (item.number >= 0 || item.op == own_ops::kExpect));
    if (!item.calls_back && !item.has_effects && !is_apart && !log.takes_dynamic(item) &&
        !log.gives_dynamic(item)) {
      ++since;
      continue;
    }
    if (!found.empty() && since <= kFewOps)
      found.back().end = i + 1;
    else
      found.push_back({i, i + 1});
    since = 0;
  }
  return found;
}

StageStarts find_stages(const CallLog& log, const std::vector<bool>& live,
                        std::span<const LogValue> outputs, const TrackedOutputs& tracked,
                        std::vector<CalledRange> called) {
  StageStarts starts;
  const bool has_called = !called.empty();
  constexpr size_t kMostViews = 16;  // each parts what is computed around it
  const DependentOutputs dependent(log, tracked.values);
  if (const SharedOutputs shared(log, outputs); shared.any()) {
    if (!shared.are_views() || shared.views().empty() || shared.views().size() > kMostViews) {
      starts.possible = Decision::forbid("two outputs share memory");
      return starts;
    }
    for (const size_t view : shared.views()) called.push_back({view, view + 1});
  }
  for (const int32_t call : tracked.entangled) {
    const auto at = static_cast<size_t>(call);
    called.push_back({at, at + 1});
  }
  sort_and_join(called);
  std::vector<Interval> intervals = dependent.intervals();
  for (const CalledRange& range : called) {
    starts.called.push_back(range.first);
    if (range.first > 0) intervals.push_back({range.first, range.first});
    if (range.end < log.calls.size()) intervals.push_back({range.end, range.end});
  }
  std::ranges::sort(intervals, {}, &Interval::last);
  if (intervals.empty()) return starts;
  for (const size_t start : dependent.recomputed())
    for (const CalledRange& range : called)
      if (range.first < start && start < range.end) {
        starts.possible = Decision::forbid("a checkpoint between ops that no graph takes");
        return starts;
      }
  if (writes_constant(log)) {
    starts.possible = Decision::forbid(
        "outputs are computed from each other, and a constant is "
        "changed");
    return starts;
  }
  const Lifetimes lifetimes(log, live);
  const size_t settled = behind_numbers(log, live);
  // In the order of their ends: one start serves all that begin before the first end.
  for (size_t i = 0; i < intervals.size();) {
    Interval shared = intervals[i];
    shared.first = std::max(shared.first, settled);
    size_t next = i + 1;
    for (; next < intervals.size() && intervals[next].first <= shared.last; ++next)
      shared.first = std::max(shared.first, intervals[next].first);
    const std::optional<size_t> start = cheapest(lifetimes, shared);
    if (!start) {
      starts.possible = Decision::forbid(
          "outputs are computed from each other, with shapes that depend on contents or numbers "
          "that are read in between");
      return starts;
    }
    starts.positions.push_back(*start);
    i = next;
  }
  if (has_called && changes_kept(log, live, starts.positions, called))
    starts.possible = Decision::forbid("what a later stage changes is used by an earlier one");
  return starts;
}

}  // namespace smelt
