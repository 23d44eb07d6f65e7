// The tensor ops of a trace, and whether and why the trace has stopped.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "capture/bytecode/nodes/breaks.h"
#include "capture/bytecode/nodes/tensors.h"

namespace smelt::bytecode {

class StoppableLog {
 public:
  StoppableLog() : log_(tensors().start_log()) {}
  StoppableLog(const StoppableLog&) = delete;
  StoppableLog& operator=(const StoppableLog&) = delete;

  bool active() const { return !break_; }
  // Ends the trace in front of the root's current instruction, and is called before what can't be
  // followed is run. The first reason counts.
  void stop(BreakReason reason, std::string detail) noexcept;
  void stop_at(Break known) noexcept;  // at a break that is known
  // The account is not complete: it stops, and gives no segment.
  void fail(const std::exception& problem) noexcept;
  bool has_failed() const { return has_failed_; }
  const std::optional<Break>& stopped() const { return break_; }
  // Fills in the user's line for stop(); set by the interpreter.
  std::function<void(Break&)> locate;
  // Asks the log whether the ops since the last call can be repeated, stops if not.
  void check_log(bool thorough = false);
  TensorLog& log() { return *log_; }

 protected:
  ~StoppableLog() = default;
  // What the code that comes next may change is written down before it runs.
  virtual void note_end() {}
  std::unique_ptr<TensorLog> log_;

 private:
  void end() noexcept;

  std::optional<Break> break_;
  bool has_failed_ = false;
};

}  // namespace smelt::bytecode
