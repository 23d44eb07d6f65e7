#include <gtest/gtest.h>

#include "base/error.h"
#include "loops/kernel.h"

namespace smelt::loops {
namespace {

// The complaint of verify() about a kernel with these stages, or "".
std::string complaint(const std::string& stages) {
  Kernel kernel = Kernel::parse(
      "kernel \"k\" outer [4] inner [3] params 1\n"
      "b0: f32[12] input\n"
      "b1: f32[12] output\n"
      "b2: f16[12] updated\n"
      "b3: i64[4] scratch\n" +
      stages + "end\n");
  try {
    kernel.verify();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

void expect_complaint(const std::string& stages, const std::string& part) {
  EXPECT_NE(complaint(stages).find(part), std::string::npos)
      << stages << "gave: " << complaint(stages);
}

TEST(Verify, AcceptsAKernel) {
  EXPECT_EQ(complaint("inner stage\n"
                      "  v0: f32 = load b0[3*i0 + i1]\n"
                      "  v1: f32 = reduce sum v0\n"
                      "outer stage\n"
                      "  v2: i64 = index i0\n"
                      "  store b3[i0] = v2\n"
                      "inner stage\n"
                      "  v4: i64 = load b3[0]\n"
                      "  v5: i64 = check v4 below 12\n"
                      "  v6: f32 = load b0[v5]\n"
                      "  v7: f32 = add v1, v6\n"
                      "  store b1[3*i0 + i1] = v7\n"
                      "  v9: f16 = cast v7\n"
                      "  accumulate b2[3*i0 + i1] = v9\n"),
            "");
}

TEST(Verify, SeesValuesUsedOutOfPlace) {
  expect_complaint("outer stage\n  v0: f32 = neg v0\n", "v0 is not a value that is seen here");
  expect_complaint("outer stage\n  v0: f32 = neg v5\n", "v5 is not a value");
  expect_complaint("inner stage\n  v0: f32 = load b0[i1]\nouter stage\n  v1: f32 = neg v0\n",
                   "v0 is not a value that is seen here");
  expect_complaint(
      "inner stage\n  v0: f32 = load b0[i1]\n  v1: f32 = reduce sum v0\n  v2: f32 = neg v1\n",
      "v1 is not a value that is seen here");
  expect_complaint(
      "inner stage\n  v0: f32 = load b0[i1]\n  store b1[i1] = v0\n  v2: f32 = neg v1\n",
      "v1 is not a value that is seen here");
}

TEST(Verify, SeesWrongTypes) {
  std::string values =
      "outer stage\n"
      "  v0: f32 = constant 1\n"
      "  v1: i64 = constant 1\n"
      "  v2: b8 = constant 1\n"
      "  v3: f16 = cast v0\n";
  expect_complaint(values + "  v4: f32 = add v0, v1\n", "of different dtypes");
  expect_complaint(values + "  v4: f64 = add v0, v0\n", "not what comes out");
  expect_complaint(values + "  v4: f32 = lt v0, v0\n", "not what comes out");
  expect_complaint(values + "  v4: i64 = exp v1\n", "does not compute with the dtype");
  expect_complaint(values + "  v4: f32 = bit_and v0, v0\n", "does not compute with the dtype");
  expect_complaint(values + "  v4: f16 = add v3, v3\n", "does not compute with the dtype");
  expect_complaint(values + "  v4: b8 = sub v2, v2\n", "does not compute with the dtype");
  expect_complaint(values + "  v4: f32 = select v1, v0, v0\n", "asks a b8");
  expect_complaint(values + "  v4: f32 = select v2, v0, v1\n", "of different dtypes");
  expect_complaint(values + "  v4: f16 = select v2, v3, v3\n", "half precision");
  expect_complaint(values + "  v4: i64 = check v0 below 4\n", "an i64 is checked");
  expect_complaint(values + "  store b1[0] = v1\n", "not of the buffer's dtype");
  expect_complaint(values + "  v4: c64 = cast v0\n", "no values of its dtype");
  expect_complaint(values + "  v4: f16 = constant 1\n", "half precision");
  expect_complaint(values + "  v4: i32 = index i0\n", "an index is an i64");
  expect_complaint(values + "  v4: f32 = load b2[0]\n", "not that of the buffer");
}

TEST(Verify, SeesWrongReductions) {
  expect_complaint("outer stage\n  v0: f32 = constant 1\n  v1: f32 = reduce sum v0\n",
                   "only an inner stage");
  expect_complaint("inner stage\n  v0: f32 = constant 1\n  v1: b8 = reduce any v0\n",
                   "not combined so");
  expect_complaint("inner stage\n  v0: f32 = constant 1\n  v1: f32 = reduce argmax v0\n",
                   "not what comes out");
}

TEST(Verify, SeesWrongAccesses) {
  std::string value = "inner stage\n  v0: f32 = constant 1\n";
  expect_complaint(value + "  v1: f32 = load b4[0]\n", "no such buffer");
  expect_complaint(value + "  v1: f32 = load b0[4*i0 + i1]\n", "leaves the buffer");
  expect_complaint(value + "  v1: f32 = load b0[-1 + i0]\n", "leaves the buffer");
  expect_complaint(value + "  v1: f32 = load b1[i0]\n", "nothing before it wrote");
  expect_complaint(value + "  v1: i64 = load b3[0]\n", "nothing before it wrote");
  expect_complaint(value + "  store b0[i0] = v0\n", "writes to an input");
  expect_complaint(value + "  accumulate b1[i0] = v0\n", "nothing before it wrote");
  expect_complaint(value + "  v1: f32 = load b0[i2]\n", "a dimension that the stage");
  expect_complaint(value + "  v1: f32 = load b0[v0]\n", "made of i64 values");
  expect_complaint(value + "  v1: f32 = load b0[v7]\n", "v7 is not a value");
  expect_complaint("outer stage\n  v0: f32 = load b0[i1]\n", "a dimension that the stage");
  expect_complaint("outer stage\n  v0: f32 = load b0[((i1) // 2)]\n", "a dimension that the stage");
  expect_complaint("outer stage\n  v0: f32 = param 1\n", "no such parameter");
}

TEST(Verify, SeesWrongStagesAndSizes) {
  Kernel good = Kernel::parse(
      "kernel \"k\" outer [4] inner []\nb0: f32[4] output\nouter stage\n  v0: f32 = constant 1\n"
      "  store b0[i0] = v0\nend\n");
  good.verify();
  Kernel kernel = good;
  kernel.stages[0].end = 1;
  EXPECT_THROW(kernel.verify(), InternalError);
  kernel = good;
  kernel.stages[0].begin = 1;
  EXPECT_THROW(kernel.verify(), InternalError);
  kernel = good;
  kernel.stages[0].end = 3;
  EXPECT_THROW(kernel.verify(), InternalError);
  kernel = good;
  kernel.outer[0] = -1;
  EXPECT_THROW(kernel.verify(), InternalError);
  kernel = good;
  kernel.buffers[0].dtype = DType::c64;
  EXPECT_THROW(kernel.verify(), InternalError);
  kernel = good;
  kernel.buffers[0].elements = -1;
  EXPECT_THROW(kernel.verify(), InternalError);
  kernel = good;
  kernel.insts[0].args[1] = 0;
  EXPECT_THROW(kernel.verify(), InternalError);
  // Of nothing no element is touched.
  kernel = good;
  kernel.outer[0] = 0;
  kernel.buffers[0].elements = 0;
  kernel.verify();
}

TEST(Parse, SaysWhereAndWhat) {
  auto message = [](const std::string& text) -> std::string {
    try {
      Kernel::parse(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  std::string head = "kernel \"k\" outer [4] inner []\nb0: f32[4] output\nouter stage\n";
  EXPECT_EQ(message("kern"),
            "this is not the text of a kernel: line 1, column 1: expected 'kernel \"name\" outer "
            "[...] inner [...]', found 'kern'");
  EXPECT_NE(message(head + "  v1: f32 = constant 1\nend\n").find("line 4"), std::string::npos);
  EXPECT_NE(message(head + "  v0: f32 = plus v1\nend\n").find("no op 'plus'"), std::string::npos);
  EXPECT_NE(message(head + "  v0: f32 = constant x\nend\n").find("a number"), std::string::npos);
  EXPECT_NE(message(head + "  store b1[0] = v0\nend\n").find("no buffer b1"), std::string::npos);
  EXPECT_NE(message(head + "  v0: f32 = load b0[i]\nend\n").find("an index"), std::string::npos);
  EXPECT_NE(message(head), "");
}

}  // namespace
}  // namespace smelt::loops
