// A root frame alternates between three ways of being run:
//
//   cached   a segment whose guards hold is run; it returns, or leaves the frame in front of an
//            instruction
//   plainly  that one instruction is run without a trace. Python functions that it calls, and in
//            which a trace stopped before, are roots of their own
//   traced   where no segment fits, a trace is run to the return or to the first thing that can't
//            be followed, and leaves a segment behind
//
// Between two of these the frame is as CPython wants it, so that at any such point CPython can take
// over and finish it.
#include "capture/bytecode/run/compiled.h"

#include <algorithm>
#include <exception>
#include <optional>

#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/interpret/follow.h"
#include "capture/bytecode/interpret/interpreter.h"
#include "capture/bytecode/nodes/messages.h"
#include "capture/bytecode/run/hook.h"
#include "capture/bytecode/trace/boundary.h"
#include "diagnostics/clock.h"
#include "diagnostics/counters.h"
#include "diagnostics/log.h"

namespace smelt::bytecode {
namespace {

// So many plain instructions or segments without a tensor op in a row, and CPython does the rest.
constexpr int kPatience = 64;
// A loop around a break: so many segments are made for one turn of it each, then some for all.
constexpr int kMostOpened = 2;
// Segments from one place that are for many sizes.
constexpr int kMostSized = 4;
// A wrong guess about what is in a tensor costs a run, as much as is won by so many right ones.
constexpr int kGuessCost = 8;
constexpr int kMostGuessCost = 8 * kGuessCost;
// The limit of recompiles is one for each class that a method is called for; so many classes may
// use it up.
constexpr size_t kMostKinds = 16;
// Behind the limit: so many frames in a row for which nothing fits, and no one looks any more.
constexpr int kMostMisses = 256;
// Of so many runs without kernels one is timed.
constexpr int kTimedOf = 8;
// So many frames in a row that are left to CPython and call nothing compiled: frames that they call
// are not looked at any more, which makes every call a bit slower.
constexpr int kMostIdleAdoptions = 32;

// Holds the right to trace, if no one else does.
class TracingTurn {
 public:
  explicit TracingTurn(std::atomic<bool>& busy) : busy_(busy), mine_(!busy.exchange(true)) {}
  ~TracingTurn() {
    if (mine_) busy_ = false;
  }
  TracingTurn(const TracingTurn&) = delete;
  TracingTurn& operator=(const TracingTurn&) = delete;
  bool mine() const { return mine_; }

 private:
  std::atomic<bool>& busy_;
  bool mine_;
};

thread_local FullgraphCheck* this_check = nullptr;

size_t ops_of(const Segment& segment) {
  return segment.result().program ? segment.result().program->ops() : 0;
}

// Takes some segments out of a list. The caller lets go of them when he is done with it: that may
// run the user's code, which may use the list.
template <class Predicate>
SegmentList take_out(SegmentList& list, const Predicate& is_wanted) {
  const auto rest = std::stable_partition(list.begin(), list.end(),
                                          [&](const auto& segment) { return !is_wanted(segment); });
  SegmentList taken(std::make_move_iterator(rest), std::make_move_iterator(list.end()));
  list.erase(rest, list.end());
  return taken;
}

}  // namespace

FullgraphCheck::FullgraphCheck() : outer_(std::exchange(this_check, this)) {}
FullgraphCheck::~FullgraphCheck() { this_check = outer_; }
FullgraphCheck* FullgraphCheck::current() { return this_check; }

void FullgraphCheck::saw_graph() {
  if (++graphs_ > 1 && !failure_) failure_ = first_;
  first_.reset();
}

void FullgraphCheck::saw_break(const Break& at) {
  if (!first_) first_ = at;
}

class RootRunner {
 public:
  RootRunner(Compiled& compiled, PyThreadState* thread, Frame frame)
      : compiled_(compiled),
        thread_(thread),
        frame_(frame),
        root_(compiled.root_code(frame)),
        segments_(root_->segments) {}

  // From the start of the frame.
  PyObject* run();
  // From its next instruction on.
  PyObject* go_on();

 private:
  // What a way of running the frame came to; `done`: the frame has ended with result_.
  enum class Next : uint8_t { again, done };

  Next finish(PyObject* result) {
    result_ = result;
    return Next::done;
  }
  Next go_on_in_cpython() {
    ++compiled_.breaks_passed_;
    if (!compiled_.has_adopted_ || compiled_.idle_adoptions_ >= kMostIdleAdoptions)
      return finish(run_in_cpython(thread_, frame_, false));
    const AdoptionScope adoption(thread_, &compiled_);  // callees are compiled as ever
    const uint64_t hits = compiled_.adopted_hits_;
    PyObject* result = run_in_cpython(thread_, frame_, false);
    compiled_.idle_adoptions_ = hits == compiled_.adopted_hits_ ? compiled_.idle_adoptions_ + 1 : 0;
    return finish(result);
  }
  // What the limit of recompiles is for: the code of nn.Module serves all modules.
  const PyTypeObject* kind() const {
    PyObject* first = frame_.code()->co_argcount > 0 ? frame_.slots()[0] : nullptr;
    if (first != nullptr && PyCell_Check(first)) first = PyCell_GET(first);
    return first == nullptr ? nullptr : Py_TYPE(first);
  }
  PyObject* function() const { return reinterpret_cast<PyObject*>(frame_.function()); }
  bool holds(Segment& segment) const {
    return segment.holds(frame_.slots(), used_slots(), function());
  }
  size_t used_slots() const { return static_cast<size_t>(frame_.locals() + frame_.depth()); }

  Next run_once();
  int* misses_behind_limit();
  std::optional<Next> run_cached(int offset);
  Next after_segment(const GilShared<Segment>& segment, Segment::Outcome outcome, int offset,
                     PyObject* value);
  void note_for_fullgraph(const Segment& segment);
  Next run_plainly(int instructions);
  Next pass_break();
  Next pass_inner_break(const GilShared<Segment>& segment, int offset);
  std::optional<Next> refuse_by_stance(int offset);
  std::optional<Next> note_misses(int offset);
  bool note_changed_sizes(const SegmentList& list);
  void note_refusal(int offset, size_t variants);
  // `outgrown`: what it takes the place of.
  Next trace(int offset, const GilShared<Segment>& outgrown = {});
  bool may_vary(int offset) const;
  bool is_for_other_sizes(int offset) const;
  Next give_up(int offset, const std::string& reason);
  void adopt_callees(const Tracing& tracing);
  Next run_expected();
  std::string why_missed(int offset) const;
  void end_trace(Tracing& tracing, const Interpreter& interpreter, FrameOutcome outcome,
                 int offset);
  std::optional<TraceResult> finish_trace(Trace& trace, const Interpreter& interpreter,
                                          FrameOutcome outcome, int offset);
  void keep(int offset, std::optional<TraceResult> result, const Trace& trace,
            const Interpreter& interpreter);
  bool note_fixed_sizes(int offset, const Trace& trace);
  void promote(int offset, const GilShared<Segment>& segment);
  bool note_wrong_guess(int offset);
  void note_right_guess(int offset);
  bool is_guessed_wrong(const SegmentList& list) const;
  bool stop_guessing(int offset);

  Compiled& compiled_;
  PyThreadState* thread_;
  Frame frame_;
  const GilShared<RootCode> root_;
  // What there is for its code. Code that the frame runs may put others in their place (reset): it
  // goes on with these until it is between two ways of being run.
  GilShared<CodeSegments> segments_;
  int idle_ = 0;                   // since a tensor op was run
  int start_ = -1;                 // the offset behind the prologue, if run from the start
  std::optional<Place> expected_;  // a trace has ended in front of it by expectation
  GilShared<Segment> last_kept_;   // of the last trace
  const PyTypeObject* traced_kind_ = nullptr;  // likewise
  bool is_tentative_ = false;                  // likewise
  Object backend_error_;
  PyObject* result_ = nullptr;
};

PyObject* RootRunner::run() {
  count(Counter::frames);
  if (root_->globals.get() != frame_.globals()) return run_in_cpython(thread_, frame_, false);
  // A segment finds cells in slots: which function they come from does not matter to it.
  if (root_->prologue > 0 && run_plainly(root_->prologue) == Next::done) return result_;
  idle_ = 0;
  start_ = frame_.next_offset();
  return go_on();
}

PyObject* RootRunner::go_on() {
  if (root_->globals.get() != frame_.globals()) return run_in_cpython(thread_, frame_, false);
  while (run_once() == Next::again) continue;
  return result_;
}

RootRunner::Next RootRunner::run_once() {
  if (segments_.get() != root_->segments.get()) segments_ = root_->segments;
  if (idle_ >= kPatience || is_traced(thread_)) return go_on_in_cpython();
  int* misses = misses_behind_limit();
  if (misses != nullptr && *misses >= kMostMisses) return go_on_in_cpython();
  const int offset = frame_.next_offset();
  if (expected_) return run_expected();
  if (misses != nullptr) ++*misses;
  if (const std::optional<Next> next = run_cached(offset)) return *next;
  if (segments_->plain.contains(offset)) return pass_break();
  return misses != nullptr ? go_on_in_cpython() : trace(offset);
}

// nullptr: there is no limit yet. What has been compiled before it is used, unless it never fits.
int* RootRunner::misses_behind_limit() {
  if (segments_->given_up.empty()) return nullptr;
  const auto found = segments_->given_up.find(kind());
  return found == segments_->given_up.end() ? nullptr : &found->second;
}

// -- cached

// Nothing if no segment's guards hold.
std::optional<RootRunner::Next> RootRunner::run_cached(int offset) {
  const auto found = segments_->at.find(offset);
  if (found == segments_->at.end()) return std::nullopt;
  // By index: what runs may change the list.
  for (size_t i = 0; i < found->second.size(); ++i) {
    const GilShared<Segment> segment = found->second[i];
    if (segment->is_tentative && compiled_.stance() == Stance::normal &&
        compiled_.budget_.repays_kernels(segment->run_ns) && holds(*segment))
      return trace(offset, segment);
    PyObject* value = nullptr;
    Segment::Outcome outcome;
    {
      const FrameLink link(thread_, frame_);
      if (!link.ok()) return finish(leave(thread_, frame_, nullptr));
      const bool is_timed = segment->is_tentative && segment->hits % kTimedOf == kTimedOf / 2;
      const int64_t start = is_timed ? now_ns() : 0;
      const int64_t waited = code_ns();
      outcome = segment->run(frame_.slots(), used_slots(), function(), &value);
      if (is_timed) segment->run_ns += kTimedOf * (now_ns() - start);
      if (const int64_t more = code_ns() - waited; more > 0)
        compiled_.budget_.spend_on_code(more, segment->is_first);
    }
    if (outcome == Segment::Outcome::mispredicted && note_wrong_guess(offset))
      i = static_cast<size_t>(-1);  // from the start of what is left
    if (outcome == Segment::Outcome::miss || outcome == Segment::Outcome::mispredicted) continue;
    if (int* misses = misses_behind_limit()) *misses = 0;
    if (i > 0) promote(offset, segment);
    return after_segment(segment, outcome, offset, value);
  }
  return std::nullopt;
}

// Where guesses are wrong too often, there are none any more. True: the segment that made this one,
// and all like it at this place, are gone.
bool RootRunner::note_wrong_guess(int offset) {
  int& wrong = segments_->wrong_guesses[offset];
  wrong += kGuessCost;
  return wrong >= kMostGuessCost && stop_guessing(offset);
}

void RootRunner::note_right_guess(int offset) {
  const auto found = segments_->wrong_guesses.find(offset);
  if (found != segments_->wrong_guesses.end() && found->second > 0 &&
      found->second < kMostGuessCost)
    --found->second;
}

// What is in the tensors is all that does not fit one of these. Where sizes do not fit, there would
// be as many variants without guesses.
bool RootRunner::is_guessed_wrong(const SegmentList& list) const {
  return std::ranges::any_of(
      list, [&](const GilShared<Segment>& segment) { return segment->guesses && holds(*segment); });
}

// True: segments that guessed are gone.
bool RootRunner::stop_guessing(int offset) {
  segments_->wrong_guesses[offset] = kMostGuessCost;
  const auto guesses = [](const GilShared<Segment>& segment) { return segment->guesses; };
  return !take_out(segments_->at[offset], guesses).empty();
}

// Most recently used first.
void RootRunner::promote(int offset, const GilShared<Segment>& segment) {
  const auto found = segments_->at.find(offset);
  if (found == segments_->at.end()) return;
  auto& list = found->second;
  const auto at = std::ranges::find(list, segment);
  if (at != list.end()) std::rotate(list.begin(), at, at + 1);
}

void RootRunner::note_for_fullgraph(const Segment& segment) {
  FullgraphCheck* check = FullgraphCheck::current();
  if (check == nullptr) return;
  if (ops_of(segment) > 0) check->saw_graph();
  if (segment.ends_at) check->saw_break(*segment.ends_at);
}

RootRunner::Next RootRunner::after_segment(const GilShared<Segment>& segment,
                                           Segment::Outcome outcome, int offset, PyObject* value) {
  ++segment->hits;
  compiled_.adopted_hits_ += root_->adopted ? 1 : 0;
  if (segment->guesses) note_right_guess(offset);
  count(Counter::cache_hits);
  keep_account(nullptr, [&] { note_for_fullgraph(*segment); });
  switch (outcome) {
    case Segment::Outcome::value: return finish(leave(thread_, frame_, value));
    case Segment::Outcome::resume:
      frame_.set_depth(segment->exit().depth);
      frame_.set_next_offset(segment->exit().offset);
      idle_ = ops_of(*segment) > 0 ? 0 : idle_ + 1;
      return segment->ends_inside ? pass_inner_break(segment, offset) : pass_break();
    case Segment::Outcome::error:
      frame_.set_running(std::max(offset, frame_.first_visible()));
      return finish(run_in_cpython(thread_, frame_, true));
    case Segment::Outcome::miss:
    case Segment::Outcome::mispredicted:
    case Segment::Outcome::retry: break;
  }
  PyErr_Clear();
  return go_on_in_cpython();
}

// -- plainly

RootRunner::Next RootRunner::pass_break() {
  ++compiled_.breaks_passed_;
  return run_plainly(1);
}

// A break in a callee may have been there once: something was loaded, or cached. Then the segment
// goes, and the next trace follows the call.
RootRunner::Next RootRunner::pass_inner_break(const GilShared<Segment>& segment, int offset) {
  segment->ends_inside = false;
  const uint64_t before = compiled_.breaks_passed_;
  const Next next = run_plainly(1);
  bool has_gone = false;
  keep_account(nullptr, [&] {
    has_gone = compiled_.breaks_passed_ == before && segments_->retried.insert(offset).second;
    if (has_gone)
      take_out(segments_->at[offset], [&](const auto& other) { return other == segment; });
  });
  if (!has_gone) ++compiled_.breaks_passed_;
  return next;
}

RootRunner::Next RootRunner::run_plainly(int instructions) {
  Interpreter interpreter(thread_, frame_, nullptr, true, {});
  FrameOutcome outcome;
  {
    const AdoptionScope adoption(thread_, &compiled_);
    outcome = interpreter.run(false, instructions);
  }
  ++idle_;
  if (outcome == FrameOutcome::stopped) return Next::again;
  return finish(interpreter.complete(outcome));
}

// -- traced

std::string RootRunner::why_missed(int offset) const {
  const auto found = segments_->at.find(offset);
  if (found == segments_->at.end() || found->second.empty()) return {};
  // Of the one that is most like what there is now.
  const auto likeness = [&](const GilShared<Segment>& segment) {
    return 2 * segment->has_same_slots(frame_.slots(), used_slots()) + (segment->kind == kind());
  };
  const GilShared<Segment> nearest = *std::ranges::max_element(found->second, {}, likeness);
  const std::string reason =
      nearest->why_not(frame_.slots(), used_slots(), reinterpret_cast<PyObject*>(frame_.code()));
  if (!nearest->has_same_slots(frame_.slots(), used_slots()) &&
      !library_of(frame_.globals()).empty())
    return reason + ", in " + text_of(frame_.code()->co_qualname);
  return reason.empty() ? "a number that was read from a tensor decided otherwise" : reason;
}

RootRunner::Next RootRunner::give_up(int offset, const std::string& reason) {
  segments_->given_up.emplace(kind(), 0);
  compiled_.budget_.close();
  if (std::exchange(compiled_.has_warned_, true)) return go_on_in_cpython();
  const std::string text = limit_text(describe_start(thread_, frame_, offset),
                                      compiled_.settings_.recompile_limit, reason);
  if (!warn(thread_, text)) return finish(leave(thread_, frame_, nullptr));
  return go_on_in_cpython();
}

// For reports, once: no warning, since nothing is slower than without smelt.
void RootRunner::note_refusal(int offset, size_t variants) {
  constexpr std::string_view kStart = "no more variants: ";
  if (std::ranges::any_of(compiled_.rollbacks_,
                          [&](const std::string& known) { return known.starts_with(kStart); }))
    return;
  compiled_.note_rollback(std::string(kStart) + describe_start(thread_, frame_, offset) + " has " +
                          std::to_string(variants) +
                          ", and one more would cost more than those have saved. Calls that fit "
                          "none of them are left to Python. Of the first of these, " +
                          name_arguments(frame_, why_missed(offset)) +
                          ". With options={'recompile_limit': 32} more are compiled.");
}

// True: some size is another one for the first time. What is made next is for all sizes there, and
// no variant more than the limit allows: there are only so many dimensions.
bool RootRunner::note_changed_sizes(const SegmentList& list) {
  bool is_new = false;
  for (const auto& segment : list)
    for (const auto& size : segment->guards().changed_sizes(frame_.slots(), used_slots()))
      is_new = segments_->changed_dims[size.path].insert(size.dim).second || is_new;
  return is_new;
}

// What there is did not fit. There may be too many by now, or one more may cost more than it saves.
std::optional<RootRunner::Next> RootRunner::note_misses(int offset) {
  Budget& budget = compiled_.budget_;
  const auto found = segments_->at.find(offset);
  if (found == segments_->at.end() || found->second.empty()) {
    if (budget.grants(0, 0)) return std::nullopt;
    budget.suspect();
    return go_on_in_cpython();
  }
  const SegmentList list = found->second;
  const auto limit = static_cast<size_t>(compiled_.settings_.recompile_limit);
  size_t like_this = 0;
  uint64_t hits = 0;
  for (const auto& segment : list) {
    like_this += segment->kind == kind() ? 1 : 0;
    hits += segment->kind == kind() ? segment->hits : 0;
  }
  // A callee's code serves another class as well: nothing is compiled again.
  if (root_->adopted && like_this == 0 && list.size() < kMostKinds * limit && budget.grants(0, 0))
    return std::nullopt;
  const bool is_new_size = may_vary(offset) && note_changed_sizes(list);
  const bool is_enough = (like_this >= limit && !is_new_size) || list.size() >= kMostKinds * limit;
  if (!is_enough && !compiled_.settings_.is_limit_given && !budget.grants(like_this, hits)) {
    note_refusal(offset, like_this);
    budget.suspect();
    return go_on_in_cpython();
  }
  for (const auto& segment : list)
    for (std::string& path : segment->guards().changed_numbers(frame_.slots(), used_slots()))
      segments_->changing.insert(std::move(path));
  const std::string reason = name_arguments(frame_, why_missed(offset));
  compiled_.note_recompile(describe_start(thread_, frame_, offset) + ": " + reason);
  if (is_enough && !(is_guessed_wrong(list) && stop_guessing(offset)))
    return give_up(offset, reason);
  return std::nullopt;
}

// What is compiled is used, and nothing is compiled: Python goes on, or the frame has an error.
std::optional<RootRunner::Next> RootRunner::refuse_by_stance(int offset) {
  const Stance stance = compiled_.stance();
  if (stance == Stance::normal) return std::nullopt;
  if (stance != Stance::fail_on_recompile) return go_on_in_cpython();
  const std::string reason = name_arguments(frame_, why_missed(offset));
  raise_recompile(describe_start(thread_, frame_, offset), reason);
  frame_.set_running(std::max(offset, frame_.first_visible()));
  return finish(run_in_cpython(thread_, frame_, true));
}

// Variants of this kind can be without number.
bool RootRunner::is_for_other_sizes(int offset) const {
  const auto found = segments_->at.find(offset);
  if (found == segments_->at.end() || compiled_.settings_.is_limit_given ||
      !compiled_.budget_.measures())
    return false;
  // What is in tensors most often decides between two ways.
  constexpr int kFewWays = 2;
  int ways = 0;
  const SegmentList list = found->second;
  return std::ranges::any_of(list, [&](const GilShared<Segment>& segment) {
    return segment->holds_for_other_sizes(frame_.slots(), used_slots()) &&
           (++ways >= kFewWays || !segment->guards().explain(frame_.slots(), used_slots()).empty());
  });
}

// A back end of the user's is given tensors, and no sizes. Where an op pins sizes, one segment after
// the other would be for one size each, and cost more than without.
bool RootRunner::may_vary(int offset) const {
  const auto sized = segments_->sized.find(offset);
  return !compiled_.backend_callable_ && compiled_.settings_.sizes != SizeUse::fixed &&
         (sized == segments_->sized.end() || sized->second < kMostSized);
}

RootRunner::Next RootRunner::trace(int offset, const GilShared<Segment>& outgrown) {
  if (const std::optional<Next> next = refuse_by_stance(offset)) return *next;
  if (tensors().refuse_state()) return go_on_in_cpython();
  const TracingTurn turn(compiled_.tracing_);
  const Tracing* outer = current_tracing();
  const bool nested = outer != nullptr && outer->runner == &compiled_;
  if (!turn.mine() && !nested) return go_on_in_cpython();
  if (outgrown) {
    is_tentative_ = false;
    take_out(segments_->at[offset], [&](const auto& one) { return one == outgrown; });
  } else {
    if (const std::optional<Next> next = note_misses(offset)) return *next;
    is_tentative_ = !compiled_.settings_.background && is_for_other_sizes(offset) &&
                    !compiled_.budget_.affords_kernels() && !may_vary(offset);
  }
  last_kept_ = {};
  traced_kind_ = kind();
  ++compiled_.traces_;
  const bool is_first = segments_->at[offset].empty();
  const int64_t start = now_ns(), waited = code_ns();
  int64_t spent = 0;
  auto trace = std::make_unique<Trace>(frame_.slots(), used_slots());
  trace->follower = &follower();
  Tracing tracing;
  tracing.trace = trace.get();
  tracing.runner = &compiled_;
  trace->code = Object::share(reinterpret_cast<PyObject*>(frame_.code()));
  // A back end of the user's takes tensors only.
  if (!compiled_.backend_callable_) {
    trace->changing = &segments_->changing;
    trace->log().keep_numbers();
  }
  const WishedSizes wished(compiled_.settings_.sizes, segments_->changed_dims);
  if (may_vary(offset)) trace->vary_sizes(&wished);
  trace->guesses.are_allowed = segments_->wrong_guesses[offset] < kMostGuessCost;
  trace->guesses.were_wrong = is_guessed_wrong(segments_->at[offset]);
  trace->opens_iterators = segments_->opened[offset] < kMostOpened;
  trace->locate = [&tracing, this](Break& at) { locate(at, thread_, tracing.frames); };
  std::vector<Ref> refs(static_cast<size_t>(frame_.locals() + frame_.code()->co_stacksize + 1));
  for (size_t i = 0; i < used_slots(); ++i)
    if (frame_.slots()[i] != nullptr) refs[i] = trace->slot_ref(static_cast<int>(i));
  Interpreter interpreter(thread_, frame_, trace.get(), true, std::move(refs));
  if (offset == start_ && !segments_->expected.empty() && !compiled_.settings_.fullgraph)
    interpreter.expect_breaks(&segments_->expected);
  FrameOutcome outcome;
  bool has_ended = false;
  {
    TracingScope scope(thread_, tracing);
    tracing.end = [&] {
      has_ended = true;
      scope.leave_process_alone();
      end_trace(tracing, interpreter, FrameOutcome::stopped, offset);
      spent = now_ns() - start;  // what is run behind the break is no part of it
    };
    outcome = interpreter.run(false);
  }
  // From here on the frame must be brought to its end.
  keep_account(trace.get(), [&] {
    if (!has_ended) {
      end_trace(tracing, interpreter, outcome, offset);
      spent = now_ns() - start;
    }
    compiled_.budget_.spend(spent, is_first, !is_tentative_);
    if (last_kept_) last_kept_->is_first = is_first;
    if (code_ns() > waited) compiled_.budget_.note_code();
    adopt_callees(tracing);
  });
  if (last_kept_) last_kept_->ends_inside = !tracing.stopped_in.empty();
  if (interpreter.has_met_expected())
    expected_ = interpreter.place();
  else if (trace->stopped())
    ++compiled_.breaks_passed_;
  trace.reset();
  if (backend_error_ && (outcome == FrameOutcome::stopped || outcome == FrameOutcome::returned)) {
    restore_error(std::move(backend_error_));
    return finish(leave(thread_, frame_, nullptr));
  }
  if (outcome == FrameOutcome::stopped) return Next::again;
  return finish(interpreter.complete(outcome));
}

// Their frames are roots when they are called again at this break. Which of their calls led further
// in is known: so all of them are compiled then, and not one level in each call.
void RootRunner::adopt_callees(const Tracing& tracing) {
  bool is_innermost = true;
  for (const Tracing::Callee& callee : tracing.stopped_in) {
    const GilShared<RootCode> code =
        compiled_.adopt(reinterpret_cast<PyCodeObject*>(callee.code.get()));
    if (code && !is_innermost)
      code->segments->expected.emplace(callee.place, tracing.trace->stopped());
    is_innermost = false;
  }
}

// The call in front of which a trace has ended by expectation. If nothing ends inside of it any
// more, the next trace follows it: once, since there are breaks that come and go.
RootRunner::Next RootRunner::run_expected() {
  const GilShared<Segment> segment = std::move(last_kept_);
  const Place expected = *std::exchange(expected_, std::nullopt);
  const uint64_t before = compiled_.breaks_passed_;
  const Next next = run_plainly(1);
  if (compiled_.breaks_passed_ > before) return next;
  keep_account(nullptr, [&] {
    if (!segments_->retried.insert(~expected.offset).second) return;
    segments_->expected[expected].reset();
    for (auto& [start, list] : segments_->at)
      take_out(list, [&](const auto& other) { return other == segment; });
  });
  return next;
}

// The trace becomes a segment, and lets go of objects that the program may have dropped. If it did
// not see every frame, nothing is kept of it, and the next call is traced again.
void RootRunner::end_trace(Tracing& tracing, const Interpreter& interpreter, FrameOutcome outcome,
                           int offset) {
  Trace& trace = *tracing.trace;
  if (tracing.has_lost_sight && outcome == FrameOutcome::returned) {
    trace.release();
    return;
  }
  std::optional<TraceResult> result;
  if (!tracing.has_lost_sight) result = finish_trace(trace, interpreter, outcome, offset);
  if (!backend_error_) keep(offset, std::move(result), trace, interpreter);
  if (const std::optional<Break>& stopped = trace.stopped()) {
    compiled_.note_break(*stopped);
    if (FullgraphCheck* check = FullgraphCheck::current()) check->saw_break(*stopped);
  }
  trace.release();
}

// Up to the return or, if that can't be, up to the last point in front of which the trace could
// end.
std::optional<TraceResult> RootRunner::finish_trace(Trace& trace, const Interpreter& interpreter,
                                                    FrameOutcome outcome, int offset) {
  const SavedError error;
  const ProcessLeftAlone as_it_was(thread_);
  Trace::Request request{compiled_.settings_, compiled_.backend_callable_.get()};
  if (is_tentative_) request.settings.engine = Engine::eager;
  std::optional<TraceResult> result;
  try {
    if (outcome == FrameOutcome::returned)
      result = trace.finish_return({interpreter.value(), interpreter.value_ref()}, request);
    const bool has_stopped = trace.stopped().has_value();
    if (trace.has_failed())
      result.reset();
    else if (!result && has_stopped && trace.exit_offset() >= 0 && trace.exit_offset() != offset)
      result = trace.finish_break(request);
  } catch (const std::exception& problem) {
    result.reset();
    trace.fail(problem);
  }
  if (compiled_.backend_callable_ && !result) backend_error_ = take_error();
  PyErr_Clear();
  return result;
}

// For reports. True: a size is among them that the user has said to vary, and the call will raise an
// error.
bool RootRunner::note_fixed_sizes(int offset, const Trace& trace) {
  bool is_marked = false;
  for (const Trace::FixedDim& dim : trace.fixed_dims()) {
    const std::string text =
        describe_start(thread_, frame_, offset) + ": " + name_arguments(frame_, dim.sentence);
    if (dim.is_marked && !is_marked)
      Compiled::fail_call(text + ", and smelt.mark_dynamic says that it varies. " + dim.remedy +
                          ".");
    is_marked = is_marked || dim.is_marked;
    compiled_.note_fixed_size(text);
  }
  return is_marked;
}

// Makes a segment of the result. Without one, the instructions that were run to no avail are run
// plainly from now on.
void RootRunner::keep(int offset, std::optional<TraceResult> result, const Trace& trace,
                      const Interpreter& interpreter) {
  const SavedError error;
  CodeSegments& segments = *segments_;
  count(Counter::instructions, static_cast<int64_t>(trace.bytecodes));
  if (!result) {
    ++idle_;
    segments.plain[offset] = true;
    for (const int visited : interpreter.between_checkpoints()) segments.plain[visited] = true;
    return;
  }
  if (trace.guesses.about_flag && !trace.backward.any && result->program &&
      result->program->is_left_to_autograd()) {
    // Two graphs with a branch between them are better than none; the next trace ends in front of
    // it.
    segments.wrong_guesses[offset] = kMostGuessCost;
    return;
  }
  if (note_fixed_sizes(offset, trace)) return;
  const bool returns = result->exit.returns;
  auto segment = make_gil_shared<Segment>(std::move(*result));
  segment->guesses = trace.guesses.any;
  segment->kind = traced_kind_;
  segment->is_tentative = is_tentative_;
  segment->is_sized = trace.sizes.any();
  if (!trace.sizes.refusal.empty())
    segments.sized[offset] += kMostSized;
  else if (segment->is_sized && trace.fixes_sizes())
    ++segments.sized[offset];
  idle_ = ops_of(*segment) > 0 ? 0 : idle_ + 1;
  count(Counter::segments);
  segment->ends = returns || !trace.stopped() ? "returns" : trace.stopped()->str();
  if (log_enabled(Log::guards)) {
    std::string text = describe_start(thread_, frame_, offset) + ":";
    for (const std::string& line : segment->guards().lines()) text += "\n  " + line;
    log(Log::guards, text);
  }
  if (!returns) segment->ends_at = trace.stopped();
  if (FullgraphCheck* check = FullgraphCheck::current(); check && ops_of(*segment) > 0)
    check->saw_graph();
  if (trace.opened_iterators > 0) ++segments.opened[offset];
  auto& list = segments.at[offset];
  list.insert(list.begin(), segment);
  last_kept_ = std::move(segment);
}

namespace {

PyObject* run_safely(Compiled& compiled, PyThreadState* thread, Frame frame, bool from_start) {
  try {
    RootRunner runner(compiled, thread, frame);
    return from_start ? runner.run() : runner.go_on();
  } catch (const std::exception& problem) {
    // Thrown between two instructions, where the frame is complete: what ran the program before has
    // thrown nothing (boundary.h).
    keep_account(nullptr, [&] { log(Log::breaks, std::string("internal: ") + problem.what()); });
    return run_in_cpython(thread, frame, PyErr_Occurred() != nullptr);
  }
}

}  // namespace

PyObject* Compiled::run_frame(PyThreadState* thread, Frame frame) {
  return run_safely(*this, thread, frame, true);
}

PyObject* Compiled::continue_frame(PyThreadState* thread, Frame frame) {
  return run_safely(*this, thread, frame, false);
}

}  // namespace smelt::bytecode
