#include "ops/facts.h"

#include <gtest/gtest.h>

#include "ops/facts_table.h"

namespace smelt {
namespace {

const OpFacts& facts(std::string_view op) { return facts_of(OpName(op)); }

TEST(Facts, AFactOfAnOpHoldsForItsForms) {
  for (const char* op : {"aten::index_add", "aten::index_add_", "aten::index_add.out",
                         "aten::index_add.dimname", "aten::scatter_.reduce"})
    EXPECT_TRUE(facts(op).may_fail && facts(op).keeps_first_shape) << op;
  for (const char* op : {"aten::as_strided", "aten::as_strided_", "aten::as_strided_scatter.out"})
    EXPECT_TRUE(facts(op).names_places) << op;
  EXPECT_FALSE(facts("aten::add.Tensor").may_fail);
}

TEST(Facts, OthersAreOfOneOverload) {
  EXPECT_TRUE(facts("aten::where").sized_by_contents);
  EXPECT_FALSE(facts("aten::where.self").sized_by_contents);
  EXPECT_TRUE(facts("aten::sum").reduces_all);
  EXPECT_FALSE(facts("aten::sum.dim_IntList").reduces_all);
  EXPECT_EQ(facts("aten::repeat_interleave.self_Tensor").unless_given, 3);
  EXPECT_EQ(facts("aten::repeat_interleave.self_int").unless_given, -1);
}

TEST(Facts, ARowWithoutAnOverloadSpeaksOfAll) {
  EXPECT_TRUE(facts("aten::arange.start_out").sized_by_numbers);
  EXPECT_EQ(facts("aten::all.dim").asks, Quantifier::all);
  EXPECT_TRUE(facts("aten::all").reduces_all);
}

TEST(Facts, WhatIsWrittenSilently) {
  for (const char* op : {"aten::batch_norm", "aten::native_batch_norm", "aten::cudnn_batch_norm"}) {
    EXPECT_EQ(facts(op).writes, (std::array<int8_t, 2>{3, 4})) << op;
    EXPECT_EQ(facts(op).writes_if, 5) << op;
  }
  EXPECT_EQ(facts("aten::_native_batch_norm_legit").writes[0], -1);
}

TEST(Facts, TheTableHasNothingToNoPurpose) {
  for (const FactsRow& row : facts_table()) EXPECT_NE(row.facts, OpFacts()) << row.name;
}

TEST(Facts, Libraries) {
  EXPECT_EQ(library_of(OpName("aten::add.Tensor")), Library::aten);
  EXPECT_EQ(library_of(OpName("mkldnn::_linear_pointwise")), Library::mkldnn);
  EXPECT_EQ(library_of(OpName("prims::convert_element_type")), Library::known);
  EXPECT_EQ(library_of(OpName("smelt::seed")), Library::own);
  EXPECT_EQ(library_of(OpName("mine::op")), Library::foreign);
}

}  // namespace
}  // namespace smelt
