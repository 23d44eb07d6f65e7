#include "bridge/background_program.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "background/background.h"
#include "bridge/choose_program.h"

namespace smelt {
namespace {

// Twice the input.
struct Doubling {
  Doubling() {
    inputs.push_back(log.add_input(x));
    log.resume();
    const at::Tensor result = x * 2;
    log.pause();
    outputs.push_back(log.find(result));
  }
  LogProgram program() const { return LogProgram(log, inputs, outputs); }
  std::shared_ptr<const TracedProgram> choose(const CompileOptions& options) const {
    return choose_program(log, {inputs, outputs, {}, {}, {}, {}}, WantedProgram::graph, options);
  }

  const at::Tensor x = at::ones({4});
  OpLog log;
  std::vector<LogValue> inputs, outputs;
};

bool doubles(const TracedProgram& program) {
  return at::equal(program.run({at::full({4}, 3.0)}).at(0), at::full({4}, 6.0));
}

// Counts what PyTorch is told to warn of.
class Warnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { told.push_back(warning.msg()); }
  std::vector<std::string> told;
};

TEST(BackgroundProgram, RunsTheLogUntilThereIsAGraph) {
  const Doubling traced;
  CompileOptions options;
  options.background = true;
  std::shared_ptr<const TracedProgram> program;
  background::hold();
  program = traced.choose(options);
  EXPECT_EQ(program->kind(), TracedProgram::Kind::op_by_op);
  EXPECT_TRUE(doubles(*program));
  EXPECT_EQ(background::pending(), 1u);
  EXPECT_NE(program->str().find("until its code is made"), std::string::npos);
  background::let_go(/*in_child=*/false);
  background::wait();
  EXPECT_EQ(background::pending(), 0u);
  EXPECT_EQ(program->kind(), TracedProgram::Kind::graph) << program->refusal();
  EXPECT_TRUE(doubles(*program));
}

TEST(BackgroundProgram, AFailureIsToldOnceAndTheLogStays) {
  const Doubling traced;
  const BackgroundProgram program(
      traced.program(), {},
      [](std::shared_ptr<const TracedProgram>&) -> Decision { throw std::bad_alloc(); });
  background::wait();
  Warnings warnings;
  {
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(doubles(program));
  }
  ASSERT_EQ(warnings.told.size(), 1u);
  EXPECT_NE(warnings.told[0].find("in the background"), std::string::npos);
  EXPECT_NE(program.str().find("# op by op: "), std::string::npos);
}

TEST(BackgroundProgram, ARefusalIsNoFailure) {
  const Doubling traced;
  const BackgroundProgram program(traced.program(), {},
                                  [](auto&) { return Decision::forbid("the log is quicker"); });
  background::wait();
  Warnings warnings;
  {
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    EXPECT_TRUE(doubles(program));
  }
  EXPECT_TRUE(warnings.told.empty());
  EXPECT_EQ(program.refusal(), "the log is quicker");
}

TEST(BackgroundProgram, OfAProgramThatIsGoneNothingIsMade) {
  const Doubling traced;
  std::atomic<bool> was_made = false;
  const auto make = [&](std::shared_ptr<const TracedProgram>&) {
    was_made = true;
    return Decision::allow();
  };
  {
    background::hold();
    const BackgroundProgram program(traced.program(), {}, make);
  }
  background::let_go(/*in_child=*/false);
  background::wait();
  EXPECT_FALSE(was_made);
}

TEST(BackgroundProgram, AChildMakesWhatItsParentWaitsFor) {
  const Doubling traced;
  CompileOptions options;
  options.background = true;
  background::submit([] { usleep(20'000); });  // that is not cut in two
  background::hold();
  const auto program = traced.choose(options);
  const pid_t child = fork();
  background::let_go(/*in_child=*/child == 0);
  background::wait();
  const bool is_right = program->kind() == TracedProgram::Kind::graph && doubles(*program);
  if (child == 0) _exit(is_right ? 0 : 1);
  EXPECT_TRUE(is_right);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace smelt
