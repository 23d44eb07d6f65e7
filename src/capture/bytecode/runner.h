// Runs the frames of a compiled function: cached segments where their guards hold, traces where
// none does, single instructions in between.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/bytecode/frame.h"
#include "capture/bytecode/segment.h"

namespace smelt::bytecode {

struct CompileOptions {
  std::string backend = "native";
  std::string tuning;  // options of the back end, as "name=value,"
  Object backend_callable;
  int mode = 0;
  bool fullgraph = false;   // an error where the tensor ops of a call can't be in one graph
  int recompile_limit = 8;  // segments per offset
};

// One line of smelt.explain's report.
struct SegmentReport {
  std::string function, file;
  int line = 0, offset = 0;
  size_t ops = 0, guards = 0, steps = 0;
  std::vector<std::string> guard_lines;
  std::string graph;
  std::string ends;  // "returns", or the break
};

// What a Compiled knows about a code object whose frames it runs.
struct RootCode {
  Object code;
  Object globals;  // of the function that was traced; other functions may share the code
  CodeSegments segments;
  bool adopted =
      false;         // a callee in which a trace stopped: called at a break, its frame is run too
  int prologue = 0;  // instructions that make the cells
  std::unordered_map<const Segment*, std::string> ends;
};

// Everything one smelt.compile() knows: the segments of its function's frame and of the frames that
// it calls at graph breaks. Shared by the callable and running calls.
class Compiled {
 public:
  explicit Compiled(CompileOptions options);
  ~Compiled();
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  // Calls the function with its frame run by smelt.
  PyObject* call(PyObject* function, PyObject* const* arguments, size_t nargsf, PyObject* names);

  const CompileOptions& options() const { return options_; }
  void reset();

  std::vector<SegmentReport> segments() const;
  const std::vector<Break>& breaks() const { return breaks_; }
  const std::vector<std::string>& recompiles() const { return recompiles_; }

  // Whether frames of this code are to be run when they are called at a graph break.
  bool adopts(PyCodeObject* code) const;

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  friend class RootRunner;
  RootCode& root_code(Frame frame);
  RootCode* adopt(PyCodeObject* code);  // nullptr: its frames can't be roots
  void note_break(const Break& at);
  void note_recompile(std::string reason);

  CompileOptions options_;
  // Entries stay for as long as this lives: a frame may be running on one.
  std::unordered_map<PyCodeObject*, std::unique_ptr<RootCode>> codes_;
  std::vector<Break> breaks_;            // each place once
  uint64_t breaks_passed_ = 0;           // by frames that it runs
  bool has_adopted_ = false;             // a callee
  std::vector<std::string> recompiles_;  // "f at line 3: x: size at dimension 0 is 5, was 8"
  std::atomic<bool> tracing_ = false;    // one thread traces at a time, others run plain meanwhile
};

// Of a call with fullgraph=True: whether all its tensor ops came in one graph. Execution goes on at
// a break as always; the error is raised when the call has ended.
class FullgraphCheck {
 public:
  FullgraphCheck();
  ~FullgraphCheck();
  FullgraphCheck(const FullgraphCheck&) = delete;
  FullgraphCheck& operator=(const FullgraphCheck&) = delete;

  static FullgraphCheck* current();
  void saw_graph();
  void saw_break(const Break& at);
  // The break between two graphs.
  const std::optional<Break>& failure() const { return failure_; }

 private:
  FullgraphCheck* outer_;
  int graphs_ = 0;
  std::optional<Break> first_, failure_;  // the first break since the last graph
};

// Runs a frame that CPython has just made, as its eval function would. C++ exceptions don't leave
// it.
PyObject* run_root(Compiled& compiled, PyThreadState* thread, Frame frame);
// The same for a frame that has been run up to some instruction.
PyObject* continue_root(Compiled& compiled, PyThreadState* thread, Frame frame);

// True while this thread is inside a trace.
bool is_tracing();
// A function that is never followed: smelt.disable.
void mark_disabled(PyObject* function);
bool is_disabled(PyObject* function);
// Whether there is code for this version of CPython's instructions; without, all is left to it.
bool follows_this_python();

}  // namespace smelt::bytecode
