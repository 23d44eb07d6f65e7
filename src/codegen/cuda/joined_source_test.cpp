#include "codegen/cuda/joined_source.h"

#include <gtest/gtest.h>

#include "codegen/cuda/nvrtc_compile.h"
#include "codegen/cuda/nvrtc_test.h"

namespace smelt::cuda {
namespace {

Source scaled() {
  return write_source(loops::Kernel::parse(R"(kernel "scale" outer [64] inner [] params 1
b0: f32[64] input
b1: f32[64] output
outer stage
  v0: f32 = load b0[i0]
  v1: f32 = param 0
  v2: f32 = mul v0, v1
  store b1[i0] = v2
end
)"),
                      true);
}

Source norm() {
  return write_source(loops::Kernel::parse(R"(kernel "norm" outer [] inner [1048576]
b0: f32[1048576] input
b1: f32[1] output
inner stage
  v0: f32 = load b0[i0]
  v1: f32 = mul v0, v0
  v2: f32 = reduce sum v1
outer stage
  v3: f32 = sqrt v2
  store b1[0] = v3
end
)"),
                      true);
}

TEST(JoinedSource, GivesEachBlockToAMember) {
  const Source scale = scaled();
  const std::vector<Body> all = {{&scale.facts, &scale.text}};
  const std::vector<size_t> bodies = {0, 0, 0};
  const JoinedSource joined = write_joined(all, bodies, Half::main);
  EXPECT_EQ(joined.entry, "smelt_scale_joined_3");
  EXPECT_EQ(argument_count(all[0], Half::main), 3);
  const std::string kernel = joined.text.substr(joined.text.find("struct Joined"));
  EXPECT_EQ(kernel, R"(struct Joined {
  u64 words[15];
};
extern "C" __global__ void __launch_bounds__(256) smelt_scale_joined_3(const __grid_constant__ Joined all) {
  int low = 0, high = 2;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (static_cast<unsigned>(all.words[middle]) <= blockIdx.x)
      low = middle;
    else
      high = middle - 1;
  }
  const u64 member = all.words[low];
  const unsigned at = static_cast<unsigned>(member >> 48);
  const unsigned block = blockIdx.x - static_cast<unsigned>(member);
  const Blocks grid = {static_cast<unsigned>(all.words[at]), 1};
  const Blocks own = {block % grid.x, block / grid.x};
  switch (static_cast<unsigned>(member >> 32) & 0xffff) {
    case 0: body0(own, grid, (const f32*)all.words[at + 1], (f32*)all.words[at + 2], (const i64)all.words[at + 3]); break;
  }
}
)");
}

TEST(JoinedSource, CompilesWithItsSecondKernel) {
  SMELT_NEEDS_NVRTC();
  const Source scale = scaled(), sum = norm();
  ASSERT_GT(sum.facts.slices, 1);
  const std::vector<Body> all = {{&scale.facts, &scale.text}, {&sum.facts, &sum.text}};
  const std::vector<size_t> bodies = {0, 1, 1, 0};
  EXPECT_NO_THROW(compile_text(write_joined(all, bodies, Half::main).text, {}));
  const std::vector<Body> sliced = {all[1]};
  const std::vector<size_t> both = {0, 0};
  EXPECT_NO_THROW(compile_text(write_joined(sliced, both, Half::finish).text, {}));
}

}  // namespace
}  // namespace smelt::cuda
