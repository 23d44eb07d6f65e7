// A compiled function: what one smelt.compile() knows. Its frames are run by runner.cpp: cached
// segments where their guards hold, traces where none does, single instructions in between.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/settings.h"
#include "capture/bytecode/cpython/frame.h"
#include "capture/bytecode/run/budget.h"
#include "capture/bytecode/run/segment.h"
#include "capture/bytecode/run/stance.h"
#include "capture/bytecode/trace/follower.h"

namespace smelt::bytecode {

// One line of smelt.explain's report.
struct SegmentReport {
  std::string function, file;
  int line = 0, offset = 0;
  size_t ops = 0, guards = 0, steps = 0;
  std::vector<std::string> guard_lines;
  std::string graph;
  std::string ends;  // "returns", or the break
  std::vector<std::string> own_sizes;
};

// What a Compiled knows about a code object whose frames it runs.
struct RootCode : GilCounted {
  Object code;
  Object globals;  // of the function that was traced; other functions may share the code
  GilShared<CodeSegments> segments = make_gil_shared<CodeSegments>();
  bool adopted =
      false;         // a callee in which a trace stopped: called at a break, its frame is run too
  int prologue = 0;  // instructions that make the cells
};

// Everything one smelt.compile() knows: the segments of its function's frame and of the frames that
// it calls at graph breaks. Shared by the callable and running calls.
class Compiled final : public FrameRunner {
 public:
  // `backend_callable`: of Engine::custom, makes programs of graphs; else nothing.
  Compiled(Settings settings, Object backend_callable);
  ~Compiled() override;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  // Calls the function with its frame run by smelt.
  PyObject* call(PyObject* function, PyObject* const* arguments, size_t nargsf, PyObject* names);

  // Its own, or the process's.
  Stance stance() const {
    const Stance own = stance_.load(std::memory_order_relaxed);
    return own == Stance::as_process ? process_stance.load(std::memory_order_relaxed) : own;
  }
  void set_stance(Stance stance) { stance_ = stance; }
  Stance own_stance() const { return stance_; }
  void reset();
  // From now on calls are made to compile ahead, or no longer.
  void set_ahead(bool is_ahead) { budget_.set_ahead(is_ahead); }

  std::vector<SegmentReport> segments() const;
  const std::vector<Break>& breaks() const { return breaks_; }
  const std::vector<std::string>& recompiles() const { return recompiles_; }
  // Sizes that varied, and what has fixed them, a sentence each.
  const std::vector<std::string>& fixed_sizes() const { return fixed_sizes_; }
  // What was found not to pay, a sentence each.
  const std::vector<std::string>& rollbacks() const { return rollbacks_; }

  // runner.cpp
  PyObject* run_frame(PyThreadState* thread, Frame frame) override;
  PyObject* continue_frame(PyThreadState* thread, Frame frame) override;
  bool adopts(PyCodeObject* code) const override;

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  friend class RootRunner;
  GilShared<RootCode> root_code(Frame frame);
  GilShared<RootCode> adopt(PyCodeObject* code);  // empty: its frames can't be roots
  const GilShared<RootCode>& known_code(PyCodeObject* code);
  void note_break(const Break& at);
  void note_recompile(std::string reason);
  void note_rollback(std::string sentence);
  void note_fixed_size(const std::string& sentence);
  // The call of a compiled function that is under way on this thread raises a SizeError when it has
  // ended.
  static void fail_call(std::string why);
  // A call of which it is not known yet whether it is better compiled, or known that it is not.
  template <class Run, class Plain>
  PyObject* call_measured(const Run& run, const Plain& plain);
  void judge(bool with_gradients);

  const Settings settings_;
  Object backend_callable_;
  std::atomic<Stance> stance_ = Stance::as_process;
  std::unordered_map<PyCodeObject*, GilShared<RootCode>> codes_;
  std::vector<Break> breaks_;            // each place once
  uint64_t breaks_passed_ = 0;           // by frames that it runs
  bool has_adopted_ = false;             // a callee
  bool has_warned_ = false;              // of the limit: said once, wherever it is reached
  std::vector<std::string> recompiles_;  // "f at line 3: x: size at dimension 0 is 5, was 8"
  std::vector<std::string> rollbacks_;
  std::vector<std::string> fixed_sizes_;
  Budget budget_;
  uint64_t traces_ = 0;
  // The last call that was timed: its backward pass comes before the next one, if there is any.
  struct Timed {
    Trial::Way way;
    bool with_gradients;
    std::shared_ptr<std::atomic<int64_t>> ns;
  };
  std::optional<Timed> timed_;
  uint64_t adopted_hits_ = 0;          // segments of callees that were run
  int idle_adoptions_ = 0;             // frames left to CPython in a row that came to none of these
  std::atomic<bool> tracing_ = false;  // one thread traces at a time, others run plain meanwhile
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

// Whether there is code for this version of CPython's instructions; without, all is left to it.
bool follows_this_python();

}  // namespace smelt::bytecode
