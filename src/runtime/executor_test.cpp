#include "runtime/executor.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace smelt {
namespace {

// Writes down what it is asked to do.
class LoggingMachine : public Machine {
 public:
  explicit LoggingMachine(const Program& program) : program_(program) {}

  void execute(size_t step) override {
    log += program_.steps[step].op + "; ";
    if (program_.steps[step].op == "fails") throw std::runtime_error("failed");
  }
  void release(Register reg) override { log += "-" + std::to_string(reg) + "; "; }

  std::string log;

 private:
  const Program& program_;
};

Step step(std::string op, std::vector<Register> release) {
  Step result;
  result.op = std::move(op);
  result.release = std::move(release);
  return result;
}

TEST(Run, ReleasesAfterEachStep) {
  Program program;
  program.steps = {step("a", {}), step("b", {2, 0}), step("c", {1})};
  LoggingMachine machine(program);
  run(program, machine);
  EXPECT_EQ(machine.log, "a; b; -2; -0; c; -1; ");
}

TEST(Run, StopsWhereAStepThrows) {
  Program program;
  program.steps = {step("a", {}), step("fails", {0}), step("c", {})};
  LoggingMachine machine(program);
  EXPECT_THROW(run(program, machine), std::runtime_error);
  EXPECT_EQ(machine.log, "a; fails; ");
}

TEST(Run, AnEmptyProgramDoesNothing) {
  Program program;
  LoggingMachine machine(program);
  run(program, machine);
  EXPECT_EQ(machine.log, "");
}

}  // namespace
}  // namespace smelt
