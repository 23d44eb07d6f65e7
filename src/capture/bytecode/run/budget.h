// What a compiled function may spend on compiling, and whether it pays. Eager is always right, so
// some calls can be run by Python alone and timed: compiled code that turns out slower is not run
// any more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace smelt::bytecode {

// Calls that are run compiled and plainly in turn, until it is known which is faster.
class Trial {
 public:
  enum class State : uint8_t {
    idle,      // nothing speaks against compiled code
    watching,  // calls are timed
    pays,
    fails,  // plain calls are faster
  };
  enum class Way : uint8_t { compiled, plain };

  State state() const { return state_; }
  // Something was seen that may cost more than it saves: a graph break, a variant, a call that no
  // compiled code fits. One that has been found to pay is looked at again when there is much of it.
  void suspect();
  // Time can't tell: compiled code is taken to pay.
  void give_up() { state_ = State::pays; }
  // How the next call is to be run; while watching only.
  Way choose();
  // Nanoseconds of such a call. True: that decided it.
  bool add(Way way, int64_t ns);
  // Of a call, compiled and plain; 0 before anything was decided.
  int64_t compiled_ns() const { return compiled_ns_; }
  int64_t plain_ns() const { return plain_ns_; }
  size_t samples() const { return plain_.size(); }

 private:
  bool judge();

  State state_ = State::idle;
  int warm_up_ = 0;  // compiled calls before the first that is plain
  int suspicions_ = 0, most_suspicions_ = 0;
  std::vector<int64_t> compiled_, plain_;
  int64_t compiled_ns_ = 0, plain_ns_ = 0;
};

// Of one compiled function. All frames that it runs ask the same one, so that what is used up in
// one of them does not start over in the frames that it calls.
class Budget {
 public:
  // Without `measures`: everything is granted, and no trial is made.
  explicit Budget(bool measures) : measures_(measures) {}

  bool measures() const { return measures_; }
  // Calls are made to compile ahead: what they need is granted and compiled at once, and none is
  // timed.
  void set_ahead(bool is_ahead) { is_ahead_ = is_ahead; }
  bool is_ahead() const { return is_ahead_; }
  Trial& trial(bool with_gradients) { return trials_[with_gradients ? 1 : 0]; }
  const Trial& trial(bool with_gradients) const { return trials_[with_gradients ? 1 : 0]; }
  // No call has to be timed or left to Python.
  bool is_quiet() const { return is_quiet_; }
  void suspect();
  // The state of a trial has changed.
  void update();

  void start_call();
  // Whether one more piece may be traced, at a place from which there are so many already, which
  // have been used so often.
  bool grants(size_t variants, uint64_t hits) const;
  // Whether a variant for other sizes or contents gets kernels at once. Else PyTorch's are called
  // for it.
  bool affords_kernels() const;
  // Whether it gets them now that its runs have taken so long.
  bool repays_kernels(int64_t run_ns) const;
  void spend(int64_t ns, bool is_first_at_place, bool has_kernels);
  // That was for code too.
  void note_code() { has_seen_code_ = true; }
  // On code that a piece was given when it was run for the first time.
  void spend_on_code(int64_t ns, bool is_first_at_place);
  // A limit of recompiles was hit: from now on only what was earned can be spent.
  void close() { is_closed_ = true; }
  // "recompiles took 1204 ms"
  std::string spent() const;

 private:
  bool has_some_left() const;
  int64_t& spent_on(bool is_first_at_place);
  int64_t earned() const;
  int64_t kernels_cost() const;

  bool measures_, is_ahead_ = false;
  bool is_quiet_ = true, is_closed_ = false;
  Trial trials_[2];                            // without and with gradients
  uint64_t calls_ = 0;                         // of the function
  int64_t start_ns_ = 0;                       // when the first of them began
  int64_t first_ns_ = 0;                       // spent on what its first calls passed, and ahead
  int64_t more_ns_ = 0;                        // and on everything else
  int64_t kernels_ns_ = 0, with_kernels_ = 0;  // of these: what pieces with kernels took, how many
  bool has_seen_code_ = false;                 // some of that was for code
};

}  // namespace smelt::bytecode
