#include "codegen/cuda/cuda_code.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/nvrtc_test.h"

namespace smelt::cuda {
namespace {

loops::Kernel negate(const std::string& name, const std::string& elements) {
  return loops::Kernel::parse("kernel \"" + name + "\" outer [" + elements +
                              "] inner []\nb0: f32[" + elements + "] input\nb1: f32[" + elements +
                              "] output\nouter stage\n  v0: f32 = load b0[i0]\n  v1: f32 = neg v0\n"
                              "  store b1[i0] = v1\nend\n");
}

TEST(CudaCode, EqualKernelsAreCompiledOnce) {
  SMELT_NEEDS_NVRTC();
  const loops::Kernel a = negate("a", "1000"), b = negate("b", "1000"), c = negate("c", "1001");
  const loops::Kernel* const kernels[] = {&a, &b, &c};
  const auto codes = compile_kernels(kernels, true, "sm_90");
  EXPECT_EQ(codes[0], codes[1]);
  EXPECT_NE(codes[0], codes[2]);
  EXPECT_EQ(compile_kernels(kernels, true, "sm_90")[1], codes[0]);
  EXPECT_NE(compile_kernels(kernels, false, "sm_90")[1], codes[0]);
}

TEST(CudaCode, IsUnpackedAsItWas) {
  SMELT_NEEDS_NVRTC();
  const loops::Kernel kernel = negate("a", "s0");
  const loops::Kernel* const kernels[] = {&kernel};
  const std::string packed = *compile_kernels(kernels, true, "sm_80")[0];
  const CudaCode code = CudaCode::unpack(packed);
  EXPECT_EQ(code.facts.entry, "smelt_a");
  EXPECT_FALSE(code.machine_code.empty());
  EXPECT_EQ(code.pack(), packed);
  EXPECT_THROW(CudaCode::unpack("something else"), Error);
  EXPECT_THROW(CudaCode::unpack(packed.substr(0, packed.size() / 2)), Error);
}

TEST(CudaCode, IndicesOfLargeKernelsHave64Bits) {
  const auto facts = [](const std::string& elements) {
    return write_source(negate("a", elements), true).facts;
  };
  EXPECT_FALSE(needs_long_index(facts("1000000")));
  EXPECT_TRUE(needs_long_index(facts("5000000000")));
  EXPECT_FALSE(needs_long_index(facts("s0")));  // seen when it is started
}

TEST(CudaBackend, RefusesWhatMustRunInOrder) {
  loops::Kernel kernel = negate("a", "1000");
  EXPECT_TRUE(cuda_backend().can_compile(kernel));
  kernel.ordered = true;
  EXPECT_EQ(cuda_backend().can_compile(kernel).reason(), "its points must run one after the other");
}

}  // namespace
}  // namespace smelt::cuda
