// What is left where memory runs out in the middle of a run.
#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <atomic>

#include "bridge/choose_program.h"
#include "bridge/machine/arena_memory.h"

namespace smelt {
namespace {

// PyTorch's allocator, which fails once, at the wanted-th request.
class FailingAllocator final : public c10::Allocator {
 public:
  explicit FailingAllocator(c10::Allocator& real) : real_(real) {}
  c10::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK(left_-- != 0, "DefaultCPUAllocator: can't allocate memory");
    return real_.allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return real_.raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    real_.copy_data(to, from, bytes);
  }
  void fail_at(int request) { left_ = request; }
  bool has_failed() const { return left_ < 0; }

 private:
  c10::Allocator& real_;
  std::atomic<int> left_ = 0;
};

class OutOfMemory : public ::testing::Test {
 protected:
  OutOfMemory() : real_(c10::GetCPUAllocator()), failing_(*real_) {}
  void fail_at(int request) {
    failing_.fail_at(request);
    c10::SetCPUAllocator(&failing_, 1);
  }
  void end() { c10::SetCPUAllocator(real_, 1); }

  c10::Allocator* real_;
  FailingAllocator failing_;
};

// Changed in place, then read by a kernel that takes new memory for what it brings into order.
TEST_F(OutOfMemory, AChangeIsMadeOnceOrNotAtAll) {
  if (native_backends().empty()) GTEST_SKIP() << "without kernels nothing is stored in place";
  const at::NoGradGuard no_grad;
  const at::Tensor p = at::rand({64, 96}), q = at::rand({64, 96});
  OpLog log;
  const LogValue inputs[] = {log.add_input(p), log.add_input(q)};
  log.resume();
  p.mul_(2);
  const at::Tensor result = at::sum(p, 0);
  q.add_(p.t().reshape({64, 96}));
  log.pause();
  const LogValue outputs[] = {log.find(result)};
  const auto chosen = choose_program(log, inputs, outputs, WantedProgram::fastest);
  const TracedProgram& program = *chosen;
  ASSERT_EQ(program.kind(), TracedProgram::Kind::graph) << program.refusal();

  int failed = 0, behind_a_change = 0;
  for (int request = 0;; ++request) {
    const at::Tensor before = at::rand({64, 96}), other = at::rand({64, 96});
    const at::Tensor x = before.clone(), y = other.clone();
    const at::Tensor expected = (before * 2).t().reshape({64, 96});
    bool threw = false;
    fail_at(request);
    RunOutcome outcome = program.attempt({x, y}, {}, OnFailure::leave);
    end();
    const bool has_changed = outcome.changed;
    try {
      std::move(outcome).take();
    } catch (const c10::Error& error) {
      threw = true;
      EXPECT_NE(std::string(error.what()).find("can't allocate memory"), std::string::npos);
    }
    if (!failing_.has_failed()) break;
    ++failed;
    if (!threw) {
      EXPECT_TRUE(at::allclose(x, before * 2)) << "request " << request;
      EXPECT_TRUE(at::allclose(y, other + expected)) << "request " << request;
    } else if (!has_changed && program.fails_cleanly()) {
      EXPECT_TRUE(at::equal(x, before)) << "request " << request;
      EXPECT_TRUE(at::equal(y, other)) << "request " << request;
    } else {
      ++behind_a_change;
    }
    program.run({x, y});  // what is left of a failure does not last
    EXPECT_TRUE(program.fails_cleanly());
  }
  EXPECT_GT(failed, 0);
  EXPECT_GT(behind_a_change, 0);
}

TEST_F(OutOfMemory, IsNoticedBeforeARunWithAnArenaStarts) {
  fail_at(0);
  EXPECT_THROW(ArenaMemory(1 << 20), c10::Error);
  end();
  ArenaMemory arena(1 << 20);
  fail_at(0);
  const at::Tensor tensor = arena.tensor(arena.at(64), {4}, {1}, at::kFloat);
  EXPECT_FALSE(failing_.has_failed());  // no memory is taken for it
  const at::Tensor other = tensor;
  EXPECT_THROW(ArenaMemory::leave(tensor), c10::Error);
  end();
  EXPECT_EQ(other.const_data_ptr(), arena.at(64));
}

}  // namespace
}  // namespace smelt
