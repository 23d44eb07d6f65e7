#include "runtime/program_text.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "runtime/verify_program.h"

namespace smelt {
namespace {

// Everything that a program can have, at least once.
constexpr const char* kText = R"(program 6 registers asks "aten::div.Tensor"
symbol s0 = 8 "batch" of input 0 dim 0
guard s0 <= 64  # model.py:12
input %0: f32[s0, 4] = 0 0
input %1: f64[] number = 0 1
input _: f32[3] cuda:0 = 1 2
const %2 = "9f\"3a"
code "kernel \"a\"\n\x00\x1b"
kernel "exp" "cpu" "avx512" cpu code 0 buffers [input, output, scratch] sizes [s0] params 1 units 2*s0 cost 7 scratch 64 ordered
kernel "put" "gpu" "sm_90" cuda:1 buffers [updated, zeroed] sizes [] units 4 finish 2 partial 128
arena 128 bytes
buffer 64 first 0 last 2 at 0
buffer 4*s0 first 1 last 1 at -1
step "exp" kernel 0 [%0, %1] -> [%3: f32[s0, 4]] reuse [_] into [_] arena [0] with_next
step "put" kernel 1 [%2] -> [%4: f32[4], %5: i64[2]{2}] release [%1] reuse [%2, _] into [_, _] arena [-1, -1]
step "aten::relu" [%4, [%3, none], 2*s0, "mean"] -> [%1: f32[4], _: f32[]] release [%4] reuse [%4, _] in_place "aten::relu_" 0 offset -3 visible grad
return [%3, _, %1]
prepared by
program 1 registers
input %0: f32[2] = 0 0
return [%0]
)";

TEST(ProgramText, SaysAllOfAProgram) {
  const Program program = parse_program(kText);
  EXPECT_EQ(to_text(program), kText);
  verify(program);
  EXPECT_EQ(program.asks_default_float, "aten::div.Tensor");
  EXPECT_EQ(program.symbols.symbols()[0].name, "batch");
  EXPECT_EQ(program.symbols.guards()[0].where, "model.py:12");
  EXPECT_EQ(program.bindings[0].input, 0);
  EXPECT_TRUE(program.inputs[1].type.wrapped_number);
  EXPECT_EQ(program.constants[0].digest, "9f\"3a");
  const KernelImage& kernel = program.kernels[0];
  EXPECT_EQ(*kernel.code, std::string("kernel \"a\"\n\0\x1b", 13));
  EXPECT_EQ(kernel.params, 1);
  EXPECT_EQ(kernel.unit_cost, Size(7));
  EXPECT_TRUE(kernel.ordered);
  EXPECT_EQ(program.kernels[1].device, parse_device("cuda:1"));
  EXPECT_EQ(program.kernels[1].code, nullptr);
  EXPECT_EQ(program.kernels[1].partial_bytes, 128);
  EXPECT_EQ(program.arena.offsets, (std::vector<int64_t>{0, -1}));
  const Step& last = program.steps[2];
  EXPECT_EQ(last.in_place_op, "aten::relu_");
  EXPECT_EQ(last.view_offset, -3);
  EXPECT_TRUE(last.visible && last.grad && !last.with_next);
  EXPECT_EQ(program.outputs, (std::vector<Register>{3, -1, 1}));
  EXPECT_EQ(program.preparation->registers, 1);
}

std::string error_of(const std::string& from, const std::string& to) {
  std::string text = kText;
  text.replace(text.find(from), from.size(), to);
  try {
    verify(parse_program(text));
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(ProgramText, IsRefusedWithLineAndColumn) {
  EXPECT_EQ(error_of("return [%3", "return [%9"), "line 17, column 9: there are 6 registers");
  EXPECT_EQ(error_of("code 0 buffers", "code 1 buffers"),
            "line 9, column 38: there is no such code");
}

TEST(VerifyProgram, FindsWhatIsNotThere) {
  const auto expect = [](const std::string& from, const std::string& to, const std::string& what) {
    EXPECT_NE(error_of(from, to).find(what), std::string::npos) << error_of(from, to);
  };
  expect("return [%3, _", "return [%4, _", "nothing is in register 4");
  expect("[%0, %1] -> [%3", "[%0, %5] -> [%3", "nothing is in register 5");
  expect("[%0, %1] -> [%3", "[%0] -> [%3", "arguments are not those of the kernel");
  expect("kernel 1 [%2]", "kernel 2 [%2]", "there is no such kernel");
  expect("arena [0]", "arena [2]", "there is no such buffer in the arena");
  expect("last 2 at 0", "last 2 at 80", "a buffer does not lie in the arena");
  expect("of input 0 dim 0", "of input 0 dim 2", "a size that is not there");
  expect("visible grad", "with_next visible grad", "only kernels are launched together");
}

}  // namespace
}  // namespace smelt
