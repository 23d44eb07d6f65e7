#include "bridge/preparation.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "compile/compile.h"

namespace smelt {
namespace {

// exp(b) of the main program's inputs a, b.
Program exponential() {
  return lower(Graph::parse(R"(graph {
  input %0: f32[4] = argument 1
  %1: f32[4] = aten::exp(%0)
  return (%1)
})"));
}

struct Inputs {
  at::Tensor a = at::ones(4), b = at::rand(4);
  std::vector<at::Tensor> list() const { return {a, b}; }
};

// Does it compute again, and the right thing, after the change?
template <class Change>
bool notices(Change change) {
  const Preparation preparation(exponential(), {});
  Inputs inputs;
  const at::Tensor before = preparation.results(inputs.list())->at(0);
  EXPECT_TRUE(at::allclose(before, inputs.b.exp()));
  change(inputs);
  const at::Tensor after = preparation.results(inputs.list())->at(0);
  EXPECT_TRUE(at::allclose(after, inputs.b.exp()));
  return !after.is_same(before);
}

TEST(Preparation, IsDoneOnce) {
  EXPECT_FALSE(notices([](Inputs&) {}));
  EXPECT_FALSE(notices([](Inputs& in) { in.a.mul_(2); }));  // it does not read that one
  EXPECT_FALSE(notices([](Inputs& in) { in.a = at::zeros(4); }));
}

TEST(Preparation, NoticesEveryKindOfChange) {
  EXPECT_TRUE(notices([](Inputs& in) { in.b.mul_(2); }));
  EXPECT_TRUE(notices([](Inputs& in) { in.b.select(0, 1).fill_(3); }));
  EXPECT_TRUE(notices([](Inputs& in) { in.b = at::rand(4); }));
  EXPECT_TRUE(notices([](Inputs& in) { in.b.set_data(at::rand(4)); }));
  EXPECT_TRUE(notices([](Inputs& in) { in.b = in.b.clone(); }));
}

// Its address may be given to another tensor of the same age once nobody holds the first.
TEST(Preparation, DoesNotTakeANewTensorForAnOldOne) {
  const Preparation preparation(exponential(), {});
  for (int i = 0; i < 20; ++i) {
    const Inputs inputs;
    EXPECT_TRUE(at::allclose(preparation.results(inputs.list())->at(0), inputs.b.exp()));
  }
}

TEST(Preparation, ThatFailsIsTheKernelsFailure) {
  const Preparation preparation(lower(Graph::parse(R"(graph {
  input %0: f32[4] = argument 1
  %1: f32[3] = aten::view(%0, [3])
  return (%1)
})")),
                                {});
  EXPECT_THROW(preparation.results(Inputs().list()), KernelFailed);
}

}  // namespace
}  // namespace smelt
