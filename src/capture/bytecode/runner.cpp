// A root frame alternates between three ways of being run:
//
//   cached   a segment whose guards hold is run; it returns, or leaves the frame in front of an
//   instruction plainly  that one instruction is run without a trace. Python functions that it
//   calls, and in which a trace stopped
//            before, are roots of their own
//   traced   where no segment fits, a trace is run to the return or to the first thing that can't
//   be followed, and
//            leaves a segment behind
//
// Between two of these the frame is as CPython wants it, so that at any such point CPython can take
// over and finish it.
#include "capture/bytecode/runner.h"

#include <algorithm>
#include <exception>
#include <optional>

#include "base/counters.h"
#include "base/log.h"
#include "capture/bytecode/hook.h"
#include "capture/bytecode/interpreter.h"

namespace smelt::bytecode {
namespace {

// So many plain instructions or segments without a tensor op in a row, and CPython does the rest.
constexpr int kPatience = 64;
// A loop around a break: so many segments are made for one turn of it each, then some for all.
constexpr int kMostOpened = 2;
// A wrong guess about what is in a tensor costs a run, as much as is won by so many right ones.
constexpr int kGuessCost = 8;
constexpr int kMostGuessCost = 8 * kGuessCost;
// The limit of recompiles is one for each class that a method is called for; so many classes may
// use it up.
constexpr size_t kMostKinds = 16;
// Behind the limit: so many frames in a row for which nothing fits, and no one looks any more.
constexpr int kMostMisses = 256;

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

std::string place_of(PyCodeObject* code, int offset) {
  const int line = PyCode_Addr2Line(code, offset * 2);
  return text_of(code->co_qualname) + " at line " + std::to_string(line);
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
      : compiled_(compiled), thread_(thread), frame_(frame), root_(compiled.root_code(frame)) {}

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
    if (!compiled_.has_adopted_) return finish(run_in_cpython(thread_, frame_, false));
    const AdoptionScope adoption(thread_, &compiled_);  // callees are compiled as ever
    return finish(run_in_cpython(thread_, frame_, false));
  }
  // What the limit of recompiles is for: the code of nn.Module serves all modules.
  const PyTypeObject* kind() const {
    PyObject* first = frame_.code()->co_argcount > 0 ? frame_.slots()[0] : nullptr;
    if (first != nullptr && PyCell_Check(first)) first = PyCell_GET(first);
    return first == nullptr ? nullptr : Py_TYPE(first);
  }
  size_t used_slots() const { return static_cast<size_t>(frame_.locals() + frame_.depth()); }

  Next run_once();
  int* misses_behind_limit();
  std::optional<Next> run_cached(int offset);
  Next after_segment(const std::shared_ptr<Segment>& segment, Segment::Outcome outcome, int offset,
                     PyObject* value);
  void note_for_fullgraph(const Segment& segment);
  Next run_plainly(int instructions);
  Next pass_break();
  Next pass_inner_break(const std::shared_ptr<Segment>& segment, int offset);
  std::optional<Next> note_misses(int offset);
  Next trace(int offset);
  Next give_up(int offset, const std::string& reason);
  void adopt_callees(const Tracing& tracing);
  Next run_expected();
  std::string why_missed(int offset) const;
  void end_trace(Trace& trace, const Interpreter& interpreter, FrameOutcome outcome, int offset);
  std::optional<TraceResult> finish_trace(Trace& trace, const Interpreter& interpreter,
                                          FrameOutcome outcome, int offset);
  void keep(int offset, std::optional<TraceResult> result, const Trace& trace,
            const Interpreter& interpreter);
  void promote(int offset, const std::shared_ptr<Segment>& segment);
  bool note_wrong_guess(int offset);
  bool stop_guessing(int offset);

  Compiled& compiled_;
  PyThreadState* thread_;
  Frame frame_;
  RootCode& root_;
  int idle_ = 0;                        // since a tensor op was run
  int start_ = -1;                      // the offset behind the prologue, if run from the start
  std::optional<Place> expected_;       // a trace has ended in front of it by expectation
  std::shared_ptr<Segment> last_kept_;  // of the last trace
  const PyTypeObject* traced_kind_ = nullptr;  // likewise
  Object backend_error_;
  PyObject* result_ = nullptr;
};

PyObject* RootRunner::run() {
  count(Counter::frames);
  if (root_.globals.get() != frame_.globals()) return run_in_cpython(thread_, frame_, false);
  // A segment finds cells in slots: which function they come from does not matter to it.
  if (root_.prologue > 0 && run_plainly(root_.prologue) == Next::done) return result_;
  idle_ = 0;
  start_ = frame_.next_offset();
  return go_on();
}

PyObject* RootRunner::go_on() {
  if (root_.globals.get() != frame_.globals()) return run_in_cpython(thread_, frame_, false);
  while (run_once() == Next::again) continue;
  return result_;
}

RootRunner::Next RootRunner::run_once() {
  if (idle_ >= kPatience || is_traced(thread_)) return go_on_in_cpython();
  int* misses = misses_behind_limit();
  if (misses != nullptr && *misses >= kMostMisses) return go_on_in_cpython();
  const int offset = frame_.next_offset();
  if (expected_) return run_expected();
  if (misses != nullptr) ++*misses;
  if (const std::optional<Next> next = run_cached(offset)) return *next;
  if (root_.segments.plain.contains(offset)) return pass_break();
  return misses != nullptr ? go_on_in_cpython() : trace(offset);
}

// nullptr: there is no limit yet. What has been compiled before it is used, unless it never fits.
int* RootRunner::misses_behind_limit() {
  if (root_.segments.given_up.empty()) return nullptr;
  const auto found = root_.segments.given_up.find(kind());
  return found == root_.segments.given_up.end() ? nullptr : &found->second;
}

// -- cached

// Nothing if no segment's guards hold.
std::optional<RootRunner::Next> RootRunner::run_cached(int offset) {
  const auto found = root_.segments.at.find(offset);
  if (found == root_.segments.at.end()) return std::nullopt;
  // A miss runs no code that could change the list.
  for (size_t i = 0; i < found->second.size(); ++i) {
    const std::shared_ptr<Segment> segment = found->second[i];
    PyObject* value = nullptr;
    Segment::Outcome outcome;
    {
      const FrameLink link(thread_, frame_);
      if (!link.ok()) return finish(leave(thread_, frame_, nullptr));
      outcome = segment->run(frame_.slots(), used_slots(), &value);
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
  int& wrong = root_.segments.wrong_guesses[offset];
  wrong += kGuessCost;
  return wrong >= kMostGuessCost && stop_guessing(offset);
}

// True: segments that guessed are gone.
bool RootRunner::stop_guessing(int offset) {
  root_.segments.wrong_guesses[offset] = kMostGuessCost;
  auto& list = root_.segments.at.at(offset);
  return std::erase_if(list, [](const auto& segment) { return segment->guesses; }) > 0;
}

// Most recently used first.
void RootRunner::promote(int offset, const std::shared_ptr<Segment>& segment) {
  const auto found = root_.segments.at.find(offset);
  if (found == root_.segments.at.end()) return;
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

RootRunner::Next RootRunner::after_segment(const std::shared_ptr<Segment>& segment,
                                           Segment::Outcome outcome, int offset, PyObject* value) {
  ++segment->hits;
  if (segment->guesses)
    if (int& wrong = root_.segments.wrong_guesses[offset]; wrong > 0 && wrong < kMostGuessCost)
      --wrong;
  count(Counter::cache_hits);
  note_for_fullgraph(*segment);
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
RootRunner::Next RootRunner::pass_inner_break(const std::shared_ptr<Segment>& segment, int offset) {
  segment->ends_inside = false;
  const uint64_t before = compiled_.breaks_passed_;
  const Next next = run_plainly(1);
  if (compiled_.breaks_passed_ == before && root_.segments.retried.insert(offset).second)
    std::erase(root_.segments.at[offset], segment);
  else
    ++compiled_.breaks_passed_;
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
  const auto found = root_.segments.at.find(offset);
  if (found == root_.segments.at.end() || found->second.empty()) return {};
  std::string reason = found->second.front()->guards().explain(frame_.slots(), used_slots());
  if (reason.empty()) reason = found->second.front()->state_difference();
  return reason.empty() ? "a number that was read from a tensor decided otherwise" : reason;
}

RootRunner::Next RootRunner::give_up(int offset, const std::string& reason) {
  root_.segments.given_up.emplace(kind(), 0);
  const std::string text =
      "smelt: " + place_of(frame_.code(), offset) + " was compiled " +
      std::to_string(compiled_.options_.recompile_limit) +
      " times; from now on Python runs what does not fit these. The last reason: " + reason +
      ". If so many variants are wanted, compile it with options="
      "{'recompile_limit': ...}.";
  // The frame is not linked: the warning is about its caller's line.
  if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) < 0)
    return finish(leave(thread_, frame_, nullptr));
  return go_on_in_cpython();
}

// What there is did not fit. There may be too many by now.
std::optional<RootRunner::Next> RootRunner::note_misses(int offset) {
  const auto found = root_.segments.at.find(offset);
  if (found == root_.segments.at.end() || found->second.empty()) return std::nullopt;
  const std::string reason = why_missed(offset);
  ++root_.segments.misses[offset];
  for (const auto& segment : found->second)
    for (std::string& path : segment->guards().changed_numbers(frame_.slots(), used_slots()))
      root_.segments.changing.insert(std::move(path));
  compiled_.note_recompile(place_of(frame_.code(), offset) + ": " + reason);
  const auto limit = static_cast<size_t>(compiled_.options_.recompile_limit);
  const auto like_this = static_cast<size_t>(std::ranges::count_if(
      found->second, [this](const auto& segment) { return segment->kind == kind(); }));
  const bool is_enough = like_this >= limit || found->second.size() >= kMostKinds * limit;
  if (is_enough && !stop_guessing(offset)) return give_up(offset, reason);
  return std::nullopt;
}

RootRunner::Next RootRunner::trace(int offset) {
  if (tensors().refuse_state()) return go_on_in_cpython();
  const TracingTurn turn(compiled_.tracing_);
  const Tracing* outer = current_tracing();
  const bool nested = outer != nullptr && outer->compiled == &compiled_;
  if (!turn.mine() && !nested) return go_on_in_cpython();
  if (const std::optional<Next> next = note_misses(offset)) return *next;
  last_kept_.reset();
  traced_kind_ = kind();
  auto trace = std::make_unique<Trace>(frame_.slots(), used_slots());
  Tracing tracing;
  tracing.trace = trace.get();
  tracing.compiled = &compiled_;
  trace->code = Object::share(reinterpret_cast<PyObject*>(frame_.code()));
  // A back end of the user's takes tensors only.
  if (!compiled_.options_.backend_callable) {
    trace->changing = &root_.segments.changing;
    trace->log().keep_numbers();
  }
  trace->speculates = root_.segments.wrong_guesses[offset] < kMostGuessCost;
  trace->opens_iterators = root_.segments.opened[offset] < kMostOpened;
  trace->locate = [&tracing](Break& at) { locate_break(tracing, at); };
  std::vector<Ref> refs(static_cast<size_t>(frame_.locals() + frame_.code()->co_stacksize + 1));
  for (size_t i = 0; i < used_slots(); ++i)
    if (frame_.slots()[i] != nullptr) refs[i] = trace->slot_ref(static_cast<int>(i));
  Interpreter interpreter(thread_, frame_, trace.get(), true, std::move(refs));
  if (offset == start_ && !root_.segments.expected.empty() && !compiled_.options_.fullgraph)
    interpreter.expect_breaks(&root_.segments.expected);
  FrameOutcome outcome;
  bool has_ended = false;
  {
    TracingScope scope(thread_, tracing);
    tracing.end = [&] {
      has_ended = true;
      end_trace(*trace, interpreter, FrameOutcome::stopped, offset);
      scope.collect_again();
    };
    outcome = interpreter.run(false);
  }
  if (!has_ended) end_trace(*trace, interpreter, outcome, offset);
  adopt_callees(tracing);
  if (last_kept_ != nullptr) last_kept_->ends_inside = !tracing.stopped_in.empty();
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
    RootCode* code = compiled_.adopt(reinterpret_cast<PyCodeObject*>(callee.code.get()));
    if (code != nullptr && !is_innermost)
      code->segments.expected.emplace(callee.place, tracing.trace->stopped());
    is_innermost = false;
  }
}

// The call in front of which a trace has ended by expectation. If nothing ends inside of it any
// more, the next trace follows it.
RootRunner::Next RootRunner::run_expected() {
  const std::shared_ptr<Segment> segment = std::move(last_kept_);
  const Place expected = *std::exchange(expected_, std::nullopt);
  const uint64_t before = compiled_.breaks_passed_;
  const Next next = run_plainly(1);
  if (compiled_.breaks_passed_ > before) return next;
  root_.segments.expected[expected].reset();
  for (auto& [start, list] : root_.segments.at) std::erase(list, segment);
  return next;
}

// The trace becomes a segment, and lets go of objects that the program may have dropped.
void RootRunner::end_trace(Trace& trace, const Interpreter& interpreter, FrameOutcome outcome,
                           int offset) {
  std::optional<TraceResult> result = finish_trace(trace, interpreter, outcome, offset);
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
  const CompileOptions& options = compiled_.options_;
  const Trace::Request request{options.backend, options.tuning, options.mode,
                               options.backend_callable.get()};
  std::optional<TraceResult> result;
  try {
    if (outcome == FrameOutcome::returned)
      result = trace.finish_return({interpreter.value(), interpreter.value_ref()}, request);
    const bool has_stopped = trace.stopped().has_value();
    if (!result && has_stopped && trace.exit_offset() >= 0 && trace.exit_offset() != offset)
      result = trace.finish_break(request);
  } catch (const std::exception& problem) {
    result.reset();
    trace.stop(BreakReason::internal, problem.what());
  }
  if (options.backend_callable && !result) backend_error_ = take_error();
  PyErr_Clear();
  return result;
}

// Makes a segment of the result. Without one, the instructions that were run to no avail are run
// plainly from now on.
void RootRunner::keep(int offset, std::optional<TraceResult> result, const Trace& trace,
                      const Interpreter& interpreter) {
  const SavedError error;
  CodeSegments& segments = root_.segments;
  count(Counter::instructions, static_cast<int64_t>(trace.bytecodes));
  if (!result) {
    ++idle_;
    segments.plain[offset] = true;
    for (const int visited : interpreter.between_checkpoints()) segments.plain[visited] = true;
    return;
  }
  if (trace.has_guessed_flag && !trace.has_backward && result->program &&
      result->program->is_left_to_autograd()) {
    // Two graphs with a branch between them are better than none; the next trace ends in front of
    // it.
    segments.wrong_guesses[offset] = kMostGuessCost;
    return;
  }
  const bool returns = result->exit.returns;
  auto segment = std::make_shared<Segment>(std::move(*result));
  segment->guesses = trace.has_guessed;
  segment->kind = traced_kind_;
  idle_ = ops_of(*segment) > 0 ? 0 : idle_ + 1;
  count(Counter::segments);
  root_.ends[segment.get()] = returns || !trace.stopped() ? "returns" : trace.stopped()->str();
  if (log_enabled(Log::guards)) {
    std::string text = place_of(frame_.code(), offset) + ":";
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
    // Thrown between two instructions, where the frame is complete.
    log(Log::breaks, std::string("internal: ") + problem.what());
    return run_in_cpython(thread, frame, PyErr_Occurred() != nullptr);
  }
}

}  // namespace

PyObject* run_root(Compiled& compiled, PyThreadState* thread, Frame frame) {
  return run_safely(compiled, thread, frame, true);
}

PyObject* continue_root(Compiled& compiled, PyThreadState* thread, Frame frame) {
  return run_safely(compiled, thread, frame, false);
}

}  // namespace smelt::bytecode
