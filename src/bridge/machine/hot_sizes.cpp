#include "bridge/machine/hot_sizes.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>

#include "diagnostics/clock.h"

namespace smelt {
namespace {

// Sizes that are remembered. Most come once.
constexpr size_t kMostSizes = 64;
// They get a program of their own when their runs have taken so many times what that costs, and
// there were so many.
constexpr int64_t kRepaidBy = 4;
constexpr uint64_t kLeastRuns = 16;
// Of so many runs one is timed.
constexpr uint64_t kTimedOf = 8;
// Runs by either program that are compared, behind some that are not. The own one has to be quicker
// by so much: less can't be told from nothing.
constexpr size_t kSamples = 12;
constexpr uint64_t kUntimed = 2;
constexpr double kQuicker = 0.98;
// A program that none of so many runs has used makes room for another.
constexpr uint64_t kForgotten = 4096;

// Without the slowest quarter, in which the machine did something else.
double mean_of(std::vector<int64_t> samples) {
  std::ranges::sort(samples);
  const auto kept = std::max<size_t>(samples.size() - samples.size() / 4, 1);
  return static_cast<double>(std::accumulate(samples.begin(), samples.begin() + kept, int64_t{0})) /
         static_cast<double>(kept);
}

std::string microseconds(double ns) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.3g us", ns / 1e3);
  return text.data();
}

}  // namespace

struct HotSizes::Entry {
  enum class State : uint8_t {
    common,     // one program for all sizes
    compiling,  // some thread does so
    trying,     // runs go by either program
    own,
    settled,  // the one for all sizes stays
  };

  std::vector<int64_t> symbols;
  State state = State::common;
  uint64_t runs = 0, last = 0;  // of all runs, the last that was for these sizes
  int64_t spent_ns = 0;         // by the one for all sizes
  uint64_t tried = 0;           // runs since there is another
  std::vector<int64_t> common_ns, own_ns;
  double common_mean = 0, own_mean = 0;
  std::string refusal;  // why there is none
  std::shared_ptr<const LinkedProgram> program;
};

HotSizes::HotSizes(int most, Cost cost, Compile compile)
    : most_(static_cast<size_t>(most)), cost_(std::move(cost)), compile_(std::move(compile)) {}
HotSizes::~HotSizes() = default;

std::shared_ptr<HotSizes::Entry> HotSizes::find(std::span<const int64_t> symbols) {
  const auto found = std::ranges::find_if(
      recent_, [&](const auto& known) { return std::ranges::equal(known->symbols, symbols); });
  if (found != recent_.end()) {
    std::rotate(recent_.begin(), found, found + 1);
    return recent_.front();
  }
  if (recent_.size() >= kMostSizes) {
    const auto last = std::find_if(recent_.rbegin(), recent_.rend(), [](const auto& known) {
      return !known->program && known->state != Entry::State::compiling;
    });
    if (last != recent_.rend()) recent_.erase(std::next(last).base());
  }
  auto made = std::make_shared<Entry>();
  made->symbols.assign(symbols.begin(), symbols.end());
  recent_.insert(recent_.begin(), made);
  return made;
}

bool HotSizes::is_worth_it(const Entry& sizes) const {
  return sizes.runs >= kLeastRuns && sizes.spent_ns >= kRepaidBy * cost_();
}

bool HotSizes::make_room() {
  const auto has_own = [](const auto& known) {
    return known->program || known->state == Entry::State::compiling;
  };
  if (static_cast<size_t>(std::ranges::count_if(recent_, has_own)) < most_) return true;
  const auto last = std::find_if(recent_.rbegin(), recent_.rend(), has_own);
  if ((*last)->state != Entry::State::own || (*last)->last + kForgotten > runs_) return false;
  recent_.erase(std::next(last).base());
  return true;
}

HotSizes::Turn HotSizes::begin(std::span<const int64_t> symbols) {
  using State = Entry::State;
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Entry> sizes = find(symbols);
  sizes->last = ++runs_;
  ++sizes->runs;
  if (sizes->state == State::common && is_worth_it(*sizes) && make_room()) {
    sizes->state = State::compiling;
    lock.unlock();
    make_own(sizes);
    lock.lock();
  }
  Turn turn;
  switch (sizes->state) {
    case State::common:
      if (sizes->runs % kTimedOf == kTimedOf / 2) turn.timed = sizes;
      break;
    case State::trying:
      // The first of them find cold caches.
      if (++sizes->tried > 2 * kUntimed) turn.timed = sizes;
      if (sizes->tried % 2 == 0) turn.own = sizes->program;
      break;
    case State::own: turn.own = sizes->program; break;
    case State::compiling:
    case State::settled: break;
  }
  lock.unlock();
  if (turn.timed) turn.start = now_ns();
  return turn;
}

void HotSizes::make_own(const std::shared_ptr<Entry>& sizes) {
  std::shared_ptr<const LinkedProgram> program;
  std::string refusal = "there can be none";
  try {
    program = compile_(sizes->symbols);
  } catch (const std::exception& error) {
    refusal = error.what();
  }
  const std::lock_guard lock(mutex_);
  sizes->program = std::move(program);
  sizes->state = sizes->program ? Entry::State::trying : Entry::State::settled;
  if (!sizes->program) sizes->refusal = std::move(refusal);
}

void HotSizes::end(const Turn& turn) {
  if (!turn.timed) return;
  const int64_t ns = now_ns() - turn.start;
  const std::lock_guard lock(mutex_);
  Entry& sizes = *turn.timed;
  if (sizes.state == Entry::State::common) sizes.spent_ns += static_cast<int64_t>(kTimedOf) * ns;
  if (sizes.state != Entry::State::trying) return;
  (turn.own ? sizes.own_ns : sizes.common_ns).push_back(ns);
  if (sizes.own_ns.size() < kSamples || sizes.common_ns.size() < kSamples) return;
  sizes.common_mean = mean_of(std::move(sizes.common_ns));
  sizes.own_mean = mean_of(std::move(sizes.own_ns));
  const bool is_quicker = sizes.own_mean < kQuicker * sizes.common_mean;
  sizes.state = is_quicker ? Entry::State::own : Entry::State::settled;
  if (!is_quicker) sizes.program = nullptr;
}

std::vector<std::string> HotSizes::describe(const SymbolTable& symbols) const {
  std::vector<std::string> lines;
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Entry>& sizes : recent_) {
    if (sizes->state == Entry::State::common) continue;
    std::string line;
    for (size_t i = 0; i < sizes->symbols.size(); ++i) {
      const std::string& name = symbols.symbols()[i].name;
      line += (i ? ", " : "") + (name.empty() ? "s" + std::to_string(i) : name) + " = " +
              std::to_string(sizes->symbols[i]);
    }
    switch (sizes->state) {
      case Entry::State::own:
        line += ": a program of its own takes " + microseconds(sizes->own_mean) +
                ", the one for all sizes " + microseconds(sizes->common_mean);
        break;
      case Entry::State::settled:
        line += sizes->refusal.empty()
                    ? ": no program of its own, it would take " + microseconds(sizes->own_mean) +
                          ", the one for all sizes takes " + microseconds(sizes->common_mean)
                    : ": no program of its own: " + sizes->refusal;
        break;
      default: line += ": a program of its own is being tried"; break;
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace smelt
