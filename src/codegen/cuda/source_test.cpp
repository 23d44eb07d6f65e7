// The texts of a few kernels. A change is a diff to read.
#include "codegen/cuda/source.h"

#include <gtest/gtest.h>

#include "base/ir_test.h"
#include "codegen/cuda/nvrtc_compile.h"
#include "codegen/cuda/nvrtc_test.h"

namespace smelt::cuda {
namespace {

TEST(Source, IsWhatItsCasesSay) {
  expect_ir_cases(__FILE__, "source_test.ir", [](const std::string& text) {
    const loops::Kernel kernel = loops::Kernel::parse(text);
    kernel.verify();
    return write_source(kernel, true).text;
  });
}

TEST(Source, OfTheCasesCompiles) {
  SMELT_NEEDS_NVRTC();
  const auto path = std::filesystem::path(__FILE__).parent_path() / "source_test.ir";
  std::string all;
  int number = 0;
  for (const IrCase& one : read_ir_cases(path)) {
    loops::Kernel kernel = loops::Kernel::parse(one.input);
    kernel.name += "_" + std::to_string(number++);
    all += write_source(kernel, true).text;
  }
  for (const char* architecture : {"sm_80", "sm_90"})
    EXPECT_NO_THROW(compile_text(all, {.architecture = architecture}));
}

TEST(Source, FactsAreReadBack) {
  const loops::Kernel kernel = loops::Kernel::parse(R"(kernel "sum" outer [4] inner [s0]
b0: f32[4*s0] input
b1: f32[4] output
inner stage
  v0: f32 = load b0[s0*i0 + i1]
  v1: f32 = reduce sum v0
outer stage
  store b1[i0] = v1
end
)");
  const Facts facts = write_source(kernel, true).facts;
  EXPECT_GT(facts.slices, 1);
  EXPECT_EQ(Facts::parse(facts.str()).str(), facts.str());
}

}  // namespace
}  // namespace smelt::cuda
