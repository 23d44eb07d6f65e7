// A program whose code is made while calls go on: its log is run op by op until the code is there,
// which takes its place between two runs. If there is none in the end, the log stays.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bridge/traced_program.h"

namespace smelt {

class BackgroundProgram final : public TracedProgram {
 public:
  // Called once, on another thread, if the program is still there. Forbidden: why the log is run op
  // by op instead. One that throws has failed, which the next run tells as a warning.
  using Make = std::function<Decision(std::shared_ptr<const TracedProgram>& made)>;

  // `guards`: what the recorded graph relies on about sizes that vary.
  BackgroundProgram(LogProgram log, std::vector<Guard> guards, Make make);

  Kind kind() const override { return made() ? made()->kind() : Kind::op_by_op; }
  const std::string& refusal() const override;
  size_t ops() const override { return made() ? made()->ops() : log_.ops(); }
  std::string str() const override;
  std::vector<Guard> size_guards() const override { return guards_; }
  std::vector<std::string> own_sizes() const override {
    return made() ? made()->own_sizes() : std::vector<std::string>();
  }

 protected:
  RunOutcome run_compiled(const std::vector<at::Tensor>& inputs,
                          std::span<const c10::Scalar> scalars,
                          OnFailure on_failure) const override;
  bool leaves_nothing_behind() const override {
    return made() ? made()->fails_cleanly() : log_.fails_cleanly();
  }

 private:
  enum class Stage : uint8_t { waits, failed, left_to_log, made };
  struct State {
    Make make;
    size_t ops = 0;  // of the log
    std::shared_ptr<const TracedProgram> made;
    std::string refusal;
    std::atomic<Stage> stage = Stage::waits;
    std::atomic<bool> is_told = false;

    void work();
  };
  const TracedProgram* made() const {
    return state_->stage.load(std::memory_order_acquire) == Stage::made ? state_->made.get()
                                                                        : nullptr;
  }

  const std::vector<Guard> guards_;
  const std::shared_ptr<State> state_;
};

}  // namespace smelt
