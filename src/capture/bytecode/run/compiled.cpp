// What a compiled function knows, apart from the running of frames (runner.cpp).
#include "capture/bytecode/run/compiled.h"

#include <opcode.h>

#include <algorithm>
#include <atomic>
#include <tuple>
#include <utility>

#include "capture/bytecode/cpython/check_internals.h"
#include "capture/bytecode/interpret/disabled.h"
#include "capture/bytecode/interpret/interpreter.h"
#include "capture/bytecode/run/hook.h"
#include "capture/bytecode/run/pass_timer.h"
#include "diagnostics/clock.h"
#include "diagnostics/counters.h"
#include "diagnostics/log.h"

namespace smelt::bytecode {
namespace {

constexpr size_t kMostNotes = 1000;  // breaks and recompiles that are remembered
constexpr int kSuspended = CO_GENERATOR | CO_COROUTINE | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR;

bool can_be_root(const PyCodeObject* code) {
  return (code->co_flags & kSuspended) == 0 && (code->co_flags & CO_OPTIMIZED) != 0;
}

// Instructions in front of the one at which a frame starts to be visible.
int prologue_of(Frame frame) {
  const Instructions instructions = instructions_of(frame.code());
  int count = 0;
  for (int i = 0; i < frame.first_visible(); ++i)
    if (instructions.bytes[2 * i] != EXTENDED_ARG) ++count;
  return count;
}

void raise_break(const Break& at) {
  const Object module = Object::steal(PyImport_ImportModule("smelt._native"));
  const Object type =
      Object::steal(module ? PyObject_GetAttrString(module.get(), "BreakError") : nullptr);
  if (!type) PyErr_Clear();
  PyErr_SetString(type ? type.get() : PyExc_RuntimeError, at.str().c_str());
}

void raise_size_error(const std::string& why) {
  const Object module = Object::steal(PyImport_ImportModule("smelt._errors"));
  const Object type =
      Object::steal(module ? PyObject_GetAttrString(module.get(), "SizeError") : nullptr);
  if (!type) PyErr_Clear();
  PyErr_SetString(type ? type.get() : PyExc_RuntimeError, why.c_str());
}

const PassTimer* given_timer = nullptr;

// Of the call that is under way. How many threads have one is known without asking for a thread's
// own memory, which each cached call would pay for.
thread_local std::string call_failure;
std::atomic<int> call_failures = 0;

bool has_failed() {
  return call_failures.load(std::memory_order_relaxed) != 0 && !call_failure.empty();
}

}  // namespace

void Compiled::fail_call(std::string why) {
  if (call_failure.empty()) ++call_failures;
  call_failure = std::move(why);
}

const PassTimer& pass_timer() { return *given_timer; }
void set_pass_timer(const PassTimer* timer) { given_timer = timer; }

namespace {

// Other back ends are for looking at what happens, fullgraph=True for knowing what does.
bool measures(const Settings& settings) {
  return settings.rollback && settings.engine == Engine::native && !settings.fullgraph;
}

std::string milliseconds(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g ms", static_cast<double>(ns) / 1e6);
  return text;
}

}  // namespace

Compiled::Compiled(Settings settings, Object backend_callable)
    : settings_(std::move(settings)),
      backend_callable_(std::move(backend_callable)),
      budget_(measures(settings_)) {
  // Asked for the first time, it imports modules: not in the middle of a trace.
  const Object sample = Object::steal(PyList_New(0));
  if (sample) is_constant(sample.get());
}
Compiled::~Compiled() = default;

PyObject* Compiled::call(PyObject* function, PyObject* const* arguments, size_t nargsf,
                         PyObject* names) {
  PyThreadState* thread = PyThreadState_Get();
  PyObject* found = python_function(function);
  if (found == nullptr || stance() == Stance::eager || is_traced(thread) || is_tracing() ||
      !follows_this_python() ||
      !can_be_root(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(found))))
    return PyObject_Vectorcall(function, arguments, nargsf, names);
  const auto run = [&]() -> PyObject* {
    PyObject* result = call_with_frame(*this, thread, reinterpret_cast<PyFunctionObject*>(found),
                                       function, arguments, nargsf, names);
    if (!has_failed()) return result;
    --call_failures;
    const std::string why = std::exchange(call_failure, {});
    if (result == nullptr) return nullptr;
    Py_DECREF(result);
    raise_size_error(why);
    return nullptr;
  };
  budget_.start_call();
  if (!budget_.is_quiet() && !budget_.is_ahead())
    return call_measured(run,
                         [&] { return PyObject_Vectorcall(function, arguments, nargsf, names); });
  if (!settings_.fullgraph) return run();
  const FullgraphCheck check;
  PyObject* result = run();
  if (result == nullptr || !check.failure()) return result;
  Py_DECREF(result);
  raise_break(*check.failure());
  return nullptr;
}

template <class Run, class Plain>
PyObject* Compiled::call_measured(const Run& run, const Plain& plain) {
  const bool with_gradients = pass_timer().with_gradients();
  if (timed_) {
    const Timed last = *std::exchange(timed_, std::nullopt);
    if (budget_.trial(last.with_gradients).add(last.way, last.ns->load()))
      judge(last.with_gradients);
  }
  Trial& trial = budget_.trial(with_gradients);
  if (trial.state() == Trial::State::fails) return plain();
  if (trial.state() != Trial::State::watching || pass_timer().is_compiling()) return run();
  const Trial::Way way = trial.choose();
  const uint64_t traces = traces_;
  const int64_t start = now_ns(), waited = code_ns();
  PyObject* result = way == Trial::Way::plain ? plain() : run();
  const int64_t spent = now_ns() - start;
  if (result == nullptr || traces_ != traces || code_ns() != waited) return result;
  if (pass_timer().is_on_device(result)) {
    trial.give_up();
    budget_.update();
    return result;
  }
  const auto ns = std::make_shared<std::atomic<int64_t>>(spent);
  if (with_gradients) pass_timer().time_passes(result, [ns](int64_t more) { *ns += more; });
  timed_ = Timed{way, with_gradients, ns};
  return result;
}

void Compiled::judge(bool with_gradients) {
  const Trial& trial = budget_.trial(with_gradients);
  budget_.update();
  if (trial.state() != Trial::State::fails) return;
  note_rollback(std::string(with_gradients ? "with gradients" : "without gradients") +
                " a call takes " + milliseconds(trial.compiled_ns()) + " compiled and " +
                milliseconds(trial.plain_ns()) + " without smelt (" +
                std::to_string(trial.samples()) +
                " calls of each were measured): it is left to Python from now on. With "
                "options={'rollback': False} it stays compiled.");
}

const GilShared<RootCode>& Compiled::known_code(PyCodeObject* code) {
  GilShared<RootCode>& root = codes_[code];
  if (!root) {
    root = make_gil_shared<RootCode>();
    root->code = Object::share(reinterpret_cast<PyObject*>(code));
  }
  return root;
}

GilShared<RootCode> Compiled::root_code(Frame frame) {
  const GilShared<RootCode>& root = known_code(frame.code());
  if (!root->globals) {
    root->globals = Object::share(frame.globals());
    root->prologue = prologue_of(frame);
  }
  return root;
}

GilShared<RootCode> Compiled::adopt(PyCodeObject* code) {
  if (!can_be_root(code)) return {};
  const GilShared<RootCode>& root = known_code(code);
  root->adopted = true;
  has_adopted_ = true;
  return root;
}

bool Compiled::adopts(PyCodeObject* code) const {
  const auto found = codes_.find(code);
  return found != codes_.end() && found->second->adopted;
}

void Compiled::note_break(const Break& at) {
  count(Counter::graph_breaks);
  const auto is_same = [&](const Break& known) {
    return known.reason == at.reason && known.line == at.line && known.file == at.file;
  };
  if (std::ranges::any_of(breaks_, is_same) || breaks_.size() >= kMostNotes) return;
  breaks_.push_back(at);
  log(Log::breaks, at.str());
  budget_.suspect();
}

void Compiled::note_recompile(std::string reason) {
  count(Counter::recompiles);
  log(Log::recompiles, reason);
  if (recompiles_.size() < kMostNotes) recompiles_.push_back(std::move(reason));
  budget_.suspect();
}

void Compiled::note_rollback(std::string sentence) {
  log(Log::recompiles, sentence);
  if (rollbacks_.size() < kMostNotes) rollbacks_.push_back(std::move(sentence));
}

void Compiled::note_fixed_size(const std::string& sentence) {
  if (std::ranges::find(fixed_sizes_, sentence) != fixed_sizes_.end() ||
      fixed_sizes_.size() >= kMostNotes)
    return;
  fixed_sizes_.push_back(sentence);
  log(Log::recompiles, sentence);
}

void Compiled::reset() {
  // What is freed may run code that calls the function: it finds nothing any more.
  std::vector<GilShared<CodeSegments>> old;
  old.reserve(codes_.size());
  for (auto& [code, root] : codes_)
    old.push_back(std::exchange(root->segments, make_gil_shared<CodeSegments>()));
  breaks_.clear();
  recompiles_.clear();
  rollbacks_.clear();
  fixed_sizes_.clear();
  budget_ = Budget(measures(settings_));
  timed_.reset();
  idle_adoptions_ = 0;
  has_warned_ = false;
}

namespace {

// A segment and where it starts.
struct Located {
  GilShared<RootCode> root;
  int offset;
  GilShared<Segment> segment;
};

SegmentReport report_on(const Located& located) {
  const TraceResult& result = located.segment->result();
  auto* code = reinterpret_cast<PyCodeObject*>(located.root->code.get());
  SegmentReport report;
  report.function = text_of(code->co_qualname);
  report.file = text_of(code->co_filename);
  report.offset = located.offset;
  report.line = PyCode_Addr2Line(code, located.offset * 2);
  report.steps = result.steps.size();
  report.guards = located.segment->guards().size();
  report.guard_lines = located.segment->guards().lines();
  if (result.program) {
    report.ops = result.program->ops();
    report.graph = result.program->str();
    report.own_sizes = result.program->own_sizes();
  }
  report.ends = located.segment->ends;
  return report;
}

}  // namespace

std::vector<SegmentReport> Compiled::segments() const {
  std::vector<Located> all;  // to describe them takes Python objects, whose making may run code
  for (const auto& [code, root] : codes_)
    for (const auto& [offset, list] : root->segments->at)
      for (const GilShared<Segment>& segment : list) all.push_back({root, offset, segment});
  std::vector<SegmentReport> reports;
  for (const Located& located : all) reports.push_back(report_on(located));
  std::ranges::sort(reports, [](const SegmentReport& a, const SegmentReport& b) {
    return std::tie(a.file, a.line, a.offset) < std::tie(b.file, b.line, b.offset);
  });
  return reports;
}

int Compiled::traverse(visitproc visit, void* arg) const {
  Py_VISIT(backend_callable_.get());
  for (const auto& [code, root] : codes_) {
    if (root.owners() > 1) continue;  // a frame that runs just now holds all of it too
    Py_VISIT(root->code.get());
    Py_VISIT(root->globals.get());
    for (const auto& [offset, list] : root->segments->at) {
      for (const GilShared<Segment>& segment : list) {
        if (segment.owners() > 1) continue;
        if (const int stop = segment->traverse(visit, arg)) return stop;
      }
    }
  }
  return 0;
}

void Compiled::clear() {
  const auto old = std::exchange(codes_, {});
  for (const auto& [code, root] : old) {
    for (auto& [offset, list] : root->segments->at)
      for (const GilShared<Segment>& segment : SegmentList(list)) segment->clear();
  }
  backend_callable_ = {};
}

bool follows_this_python() { return Interpreter::supports_this_python() && !internals_differ; }

}  // namespace smelt::bytecode
