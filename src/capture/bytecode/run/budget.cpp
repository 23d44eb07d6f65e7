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
#include <cmath>

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
// So many times what a trace costs, as long as no code was made.
constexpr int64_t kCodeTimes = 10;

// With so many samples of each way, compiled code has failed if it takes more than `fails` times as
// long as plain Python, and pays below `pays`: if the difference is more than what samples that are
// so far apart may differ by chance. Calls for batches of random lengths are.
struct Verdict {
  size_t samples;
  double pays, fails;
};
constexpr Verdict kVerdicts[] = {{6, 0.75, 1.3}, {12, 0.9, 1.1}, {24, 0.96, 1.04}, {48, 1.0, 1.0}};

// Likely errors of the difference of two means: more than so many are none by chance. To give
// compiled code up takes more than to keep it.
constexpr double kSurelyPays = 2, kSurelyFails = 3, kFailsAtLast = 2;

struct Estimate {
  double mean = 0;
  double variance = 0;  // of the mean
};

// Without the slowest quarter, in which the machine did something else.
Estimate estimate(std::vector<int64_t> samples) {
  std::ranges::sort(samples);
  samples.resize(std::max<size_t>(samples.size() - samples.size() / 4, 1));
  const auto count = static_cast<double>(samples.size());
  Estimate found;
  for (const int64_t sample : samples) found.mean += static_cast<double>(sample) / count;
  for (const int64_t sample : samples) {
    const double off = static_cast<double>(sample) - found.mean;
    found.variance += off * off / std::max(count - 1, 1.0) / count;
  }
  return found;
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
  const Estimate by_compiled = estimate(compiled_), by_plain = estimate(plain_);
  const double compiled = by_compiled.mean, plain = std::max(by_plain.mean, 1.0);
  const double error = std::sqrt(by_compiled.variance + by_plain.variance);
  const bool is_last = verdict == std::end(kVerdicts) - 1;
  const bool pays = compiled <= verdict->pays * plain && plain - compiled >= kSurelyPays * error;
  const bool fails = compiled >= verdict->fails * plain &&
                     compiled - plain >= (is_last ? kFailsAtLast : kSurelyFails) * error;
  if (!is_last && !pays && !fails) return false;
  compiled_ns_ = static_cast<int64_t>(compiled);
  plain_ns_ = static_cast<int64_t>(plain);
  state_ = fails ? State::fails : State::pays;
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
  if (!measures_ || is_ahead_) return true;
  if (variants == 0) return calls_ <= kWarmUp || has_some_left();
  if (variants >= kUntried && hits + kUntried <= variants + 1) return false;
  return has_some_left();
}

void Budget::start_call() {
  if (calls_++ == 0 && measures_) start_ns_ = now_ns();
}

bool Budget::affords_kernels() const {
  if (!measures_ || is_ahead_) return true;
  const int64_t running = now_ns() - start_ns_ - first_ns_ - more_ns_;
  return more_ns_ + kernels_cost() <= running / kSmallPart + earned();
}

bool Budget::repays_kernels(int64_t run_ns) const { return run_ns >= kRepaidBy * kernels_cost(); }

int64_t Budget::kernels_cost() const {
  const int64_t mean = kernels_ns_ / std::max<int64_t>(with_kernels_, 1);
  return has_seen_code_ ? mean : kCodeTimes * mean;
}

int64_t& Budget::spent_on(bool is_first_at_place) {
  return is_ahead_ || (is_first_at_place && calls_ <= kWarmUp) ? first_ns_ : more_ns_;
}

void Budget::spend_on_code(int64_t ns, bool is_first_at_place) {
  spent_on(is_first_at_place) += ns;
  kernels_ns_ += ns;
  has_seen_code_ = true;
}

void Budget::spend(int64_t ns, bool is_first_at_place, bool has_kernels) {
  spent_on(is_first_at_place) += ns;
  if (!has_kernels) return;
  kernels_ns_ += ns;
  ++with_kernels_;
}

std::string Budget::spent() const {
  return "recompiles took " + std::to_string(more_ns_ / 1'000'000) + " ms";
}

}  // namespace smelt::bytecode
