#include "bridge/background_program.h"

#include <c10/util/Exception.h>

#include <exception>

#include "background/background.h"
#include "diagnostics/counters.h"
#include "diagnostics/log.h"

namespace smelt {

// Once. What it was made of is let go.
void BackgroundProgram::State::work() {
  Stage reached = Stage::made;
  try {
    if (const Decision can = std::exchange(make, {})(made); !can) {
      reached = Stage::left_to_log;
      refusal = can.reason();
    }
  } catch (const Error& error) {
    reached = Stage::left_to_log;
    refusal = error.what();
  } catch (const std::exception& error) {
    reached = Stage::failed;
    refusal = error.what();
  }
  if (reached != Stage::made) {
    count(Counter::graphs);
    count(Counter::ops_fallback, static_cast<int64_t>(ops));
  }
  if (log_enabled(Log::perf))
    smelt::log(Log::perf, reached == Stage::made ? "code that was made in the background is there"
                                                 : "no code is made in the background: " + refusal);
  stage.store(reached, std::memory_order_release);
}

BackgroundProgram::BackgroundProgram(LogProgram log, std::vector<Guard> guards, Make make)
    : TracedProgram(std::move(log)), guards_(std::move(guards)), state_(std::make_shared<State>()) {
  state_->make = std::move(make);
  state_->ops = log_.ops();
  background::submit([weak = std::weak_ptr<State>(state_)] {
    if (const std::shared_ptr<State> state = weak.lock()) state->work();
  });
}

const std::string& BackgroundProgram::refusal() const {
  if (const TracedProgram* program = made()) return program->refusal();
  static const std::string none;
  return state_->stage.load(std::memory_order_acquire) == Stage::waits ? none : state_->refusal;
}

RunOutcome BackgroundProgram::run_compiled(const std::vector<at::Tensor>& inputs,
                                           std::span<const c10::Scalar> scalars,
                                           OnFailure on_failure) const {
  if (const TracedProgram* program = made())
    return run_compiled_of(*program, inputs, scalars, on_failure);
  if (state_->stage.load(std::memory_order_acquire) == Stage::failed &&
      !state_->is_told.exchange(true))
    TORCH_WARN(
        "smelt: a graph could not be compiled in the background, and PyTorch's kernels stay in its "
        "place: ",
        state_->refusal);
  return {};
}

std::string BackgroundProgram::str() const {
  if (const TracedProgram* program = made()) return program->str();
  const std::string& why = refusal();
  return (why.empty() ? "# op by op, until its code is made in the background\n"
                      : "# op by op: " + why + "\n") +
         log_.str();
}

}  // namespace smelt
