// Compiling costs time once, and a compiled call saves time each time. For a function whose calls
// all are alike that is settled after a few calls. One whose calls differ, in sizes or in what
// random numbers decide, can go on compiling for ever, and what it has compiled may fit no later
// call. So
//
//   - what the first calls pass is compiled at once. Everything else may cost three times as much
//     as that: a change from training to evaluation, a last batch that is smaller. What goes beyond
//     must have been earned by calls that were measured to be faster;
//   - a place whose variants are never used again gets no further ones;
//   - nine tenths of the cost are kernels. A variant for tensors of other sizes, or with other
//     contents, calls PyTorch's until it has been run for as long as kernels may save: most of such
//     variants never come to that. It has them at once where that takes a small part of the time
//     that the program has been running for;
//   - where there are breaks or variants, calls are measured both ways. What does not pay is rolled
//     back to Python.
//
// A rollback changes which kernels run, hence the rounding of results, by what the clock says.
// Whoever needs calls to be the same to the last bit compiles with options={'rollback': False}.
#include "capture/bytecode/run/budget.h"

#include <algorithm>
#include <numeric>

#include "diagnostics/clock.h"

namespace smelt::bytecode {
namespace {

constexpr int kWarmUp = 8;  // calls until everything is compiled that is passed each time
constexpr int kUntimed = 2 * kWarmUp;  // compiled calls before a trial begins
// A second trial is made after so many suspicions, a third after twice as many, and so on.
constexpr int kMostSuspicions = 64;
// So much may be spent in any case, and so many times what the first calls cost.
constexpr int64_t kFreeNs = 100'000'000;
constexpr int64_t kFreeTimes = 3;
// So many variants need not have been used again.
constexpr size_t kUntried = 4;

// A variant gets kernels at once if all variants take such a part of the time since the first call;
// later if its runs have taken so many times what kernels cost.
constexpr int64_t kSmallPart = 16;
constexpr int64_t kRepaidBy = 4;

// With so many samples of each way, compiled code has failed if it takes more than `fails` times as
// long as plain Python, and pays below `pays`.
struct Verdict {
  size_t samples;
  double pays, fails;
};
constexpr Verdict kVerdicts[] = {{6, 0.75, 1.3}, {12, 0.9, 1.1}, {24, 0.96, 1.04}, {48, 1.0, 1.0}};

// Without the slowest quarter, in which the machine did something else.
double mean_of(std::vector<int64_t> samples) {
  std::ranges::sort(samples);
  const auto kept = std::max<size_t>(samples.size() - samples.size() / 4, 1);
  return static_cast<double>(std::accumulate(samples.begin(), samples.begin() + kept, int64_t{0})) /
         static_cast<double>(kept);
}

}  // namespace

void Trial::suspect() {
  if (state_ == State::watching || state_ == State::fails) return;
  if (++suspicions_ <= most_suspicions_) return;
  suspicions_ = 0;
  most_suspicions_ = std::max(kMostSuspicions, 2 * most_suspicions_);
  state_ = State::watching;
  warm_up_ = kUntimed;
  compiled_.clear();
  plain_.clear();
}

Trial::Way Trial::choose() {
  if (warm_up_ > 0) return Way::compiled;
  return plain_.size() < compiled_.size() ? Way::plain : Way::compiled;
}

bool Trial::add(Way way, int64_t ns) {
  if (state_ != State::watching) return false;
  if (warm_up_ > 0) {
    --warm_up_;
    return false;
  }
  (way == Way::plain ? plain_ : compiled_).push_back(ns);
  return judge();
}

bool Trial::judge() {
  const size_t samples = plain_.size();
  if (samples != compiled_.size()) return false;
  const auto* verdict = std::ranges::find(kVerdicts, samples, &Verdict::samples);
  if (verdict == std::end(kVerdicts)) return false;
  const double compiled = mean_of(compiled_), plain = std::max(mean_of(plain_), 1.0);
  const bool is_last = verdict == std::end(kVerdicts) - 1;
  if (!is_last && compiled > verdict->pays * plain && compiled < verdict->fails * plain)
    return false;
  compiled_ns_ = static_cast<int64_t>(compiled);
  plain_ns_ = static_cast<int64_t>(plain);
  state_ = compiled < verdict->fails * plain ? State::pays : State::fails;
  return true;
}

void Budget::suspect() {
  if (!measures_) return;
  // The two kinds of calls are told apart when one is made: each is watched from its own next call.
  for (Trial& trial : trials_) trial.suspect();
  update();
}

void Budget::update() {
  is_quiet_ = std::ranges::none_of(trials_, [](const Trial& trial) {
    return trial.state() == Trial::State::watching || trial.state() == Trial::State::fails;
  });
}

int64_t Budget::earned() const {
  int64_t saved = 0;
  for (const Trial& trial : trials_)
    saved = std::max(saved, trial.plain_ns() - trial.compiled_ns());
  return saved * static_cast<int64_t>(calls_);
}

bool Budget::has_some_left() const {
  const int64_t free = is_closed_ ? 0 : kFreeNs + kFreeTimes * first_ns_;
  return more_ns_ <= free + earned();
}

bool Budget::grants(size_t variants, uint64_t hits) const {
  if (!measures_) return true;
  if (variants == 0) return calls_ <= kWarmUp || has_some_left();
  if (variants >= kUntried && hits + kUntried <= variants + 1) return false;
  return has_some_left();
}

void Budget::start_call() {
  if (calls_++ == 0 && measures_) start_ns_ = now_ns();
}

bool Budget::affords_kernels() const {
  if (!measures_) return true;
  const int64_t running = now_ns() - start_ns_ - first_ns_ - more_ns_;
  return more_ns_ + kernels_cost() <= running / kSmallPart + earned();
}

bool Budget::repays_kernels(int64_t run_ns) const { return run_ns >= kRepaidBy * kernels_cost(); }

void Budget::spend(int64_t ns, bool is_first_at_place, bool has_kernels) {
  (is_first_at_place && calls_ <= kWarmUp ? first_ns_ : more_ns_) += ns;
  if (!has_kernels) return;
  kernels_ns_ += ns;
  ++with_kernels_;
}

std::string Budget::spent() const {
  return "recompiles took " + std::to_string(more_ns_ / 1'000'000) + " ms";
}

}  // namespace smelt::bytecode
