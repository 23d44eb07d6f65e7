// What a compiled function knows, apart from the running of frames (runner.cpp).
#include <opcode.h>

#include <algorithm>
#include <tuple>

#include "base/counters.h"
#include "base/log.h"
#include "capture/bytecode/hook.h"
#include "capture/bytecode/interpreter.h"
#include "capture/bytecode/runner.h"

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

const char* const kDisabled = "_smelt_disabled";

// A function's own dict gets the function's address, so that functools.wraps does not pass the mark
// on.
PyObject* function_of(PyObject* callable) {
  if (PyMethod_Check(callable)) callable = PyMethod_GET_FUNCTION(callable);
  return PyFunction_Check(callable) ? callable : nullptr;
}

}  // namespace

Compiled::Compiled(CompileOptions options) : options_(std::move(options)) {
  // Asked for the first time, it imports modules: not in the middle of a trace.
  const Object sample = Object::steal(PyList_New(0));
  if (sample) is_constant(sample.get());
}
Compiled::~Compiled() = default;

PyObject* Compiled::call(PyObject* function, PyObject* const* arguments, size_t nargsf,
                         PyObject* names) {
  PyThreadState* thread = PyThreadState_Get();
  PyObject* found = function_of(function);
  if (found == nullptr || is_traced(thread) || is_tracing() || !follows_this_python() ||
      !can_be_root(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(found))))
    return PyObject_Vectorcall(function, arguments, nargsf, names);
  const auto run = [&] {
    return call_with_frame(*this, thread, reinterpret_cast<PyFunctionObject*>(found), function,
                           arguments, nargsf, names);
  };
  if (!options_.fullgraph) return run();
  const FullgraphCheck check;
  PyObject* result = run();
  if (result == nullptr || !check.failure()) return result;
  Py_DECREF(result);
  raise_break(*check.failure());
  return nullptr;
}

RootCode& Compiled::root_code(Frame frame) {
  PyCodeObject* code = frame.code();
  std::unique_ptr<RootCode>& root = codes_[code];
  if (!root) {
    root = std::make_unique<RootCode>();
    root->code = Object::share(reinterpret_cast<PyObject*>(code));
  }
  if (!root->globals) {
    root->globals = Object::share(frame.globals());
    root->prologue = prologue_of(frame);
  }
  return *root;
}

RootCode* Compiled::adopt(PyCodeObject* code) {
  if (!can_be_root(code)) return nullptr;
  std::unique_ptr<RootCode>& root = codes_[code];
  if (!root) {
    root = std::make_unique<RootCode>();
    root->code = Object::share(reinterpret_cast<PyObject*>(code));
  }
  root->adopted = true;
  has_adopted_ = true;
  return root.get();
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
}

void Compiled::note_recompile(std::string reason) {
  count(Counter::recompiles);
  log(Log::recompiles, reason);
  if (recompiles_.size() < kMostNotes) recompiles_.push_back(std::move(reason));
}

void Compiled::reset() {
  // What is freed may run code that calls the function: it finds nothing any more.
  std::vector<CodeSegments> old;
  for (auto& [code, root] : codes_) {
    old.push_back(std::exchange(root->segments, {}));
    root->ends.clear();
  }
  breaks_.clear();
  recompiles_.clear();
}

std::vector<SegmentReport> Compiled::segments() const {
  std::vector<SegmentReport> reports;
  for (const auto& [code, root] : codes_) {
    for (const auto& [offset, list] : root->segments.at) {
      for (const std::shared_ptr<Segment>& segment : list) {
        const TraceResult& result = segment->result();
        SegmentReport report;
        report.function = text_of(code->co_qualname);
        report.file = text_of(code->co_filename);
        report.offset = offset;
        report.line = PyCode_Addr2Line(code, offset * 2);
        report.steps = result.steps.size();
        report.guards = segment->guards().size();
        report.guard_lines = segment->guards().lines();
        if (result.program) {
          report.ops = result.program->ops();
          report.graph = result.program->str();
        }
        if (const auto end = root->ends.find(segment.get()); end != root->ends.end())
          report.ends = end->second;
        reports.push_back(std::move(report));
      }
    }
  }
  std::ranges::sort(reports, [](const SegmentReport& a, const SegmentReport& b) {
    return std::tie(a.file, a.line, a.offset) < std::tie(b.file, b.line, b.offset);
  });
  return reports;
}

int Compiled::traverse(visitproc visit, void* arg) const {
  Py_VISIT(options_.backend_callable.get());
  for (const auto& [code, root] : codes_) {
    Py_VISIT(root->code.get());
    Py_VISIT(root->globals.get());
    for (const auto& [offset, list] : root->segments.at) {
      for (const std::shared_ptr<Segment>& segment : list) {
        // One that is running just now is held by others too.
        if (segment.use_count() > 1) continue;
        if (const int stop = segment->traverse(visit, arg)) return stop;
      }
    }
  }
  return 0;
}

void Compiled::clear() {
  const auto old = std::exchange(codes_, {});
  for (const auto& [code, root] : old)
    for (const auto& [offset, list] : root->segments.at)
      for (const std::shared_ptr<Segment>& segment : list) segment->clear();
  options_.backend_callable = {};
}

// -- smelt.disable

void mark_disabled(PyObject* function) {
  PyObject* found = function_of(function);
  if (found == nullptr) return;
  const Object mark = Object::steal(PyLong_FromVoidPtr(found));
  if (!mark || PyObject_SetAttrString(found, kDisabled, mark.get()) < 0) PyErr_Clear();
}

bool follows_this_python() { return Interpreter::supports_this_python(); }

bool is_disabled(PyObject* function) {
  PyObject* found = function_of(function);
  PyObject* dict =
      found != nullptr ? reinterpret_cast<PyFunctionObject*>(found)->func_dict : nullptr;
  if (dict == nullptr) return false;
  static PyObject* key = PyUnicode_InternFromString(kDisabled);
  PyObject* mark = PyDict_GetItemWithError(dict, key);
  if (mark != nullptr) return PyLong_AsVoidPtr(mark) == found;
  PyErr_Clear();
  return false;
}

}  // namespace smelt::bytecode
