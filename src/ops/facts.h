// What is known of an op beside its shape rule and its meaning. Whoever has to treat an op in its
// own way asks here, and compares no names. A fact stands in the op's row (rows.h) where it has
// one, else in facts_table.cpp; what a schema or a tag of PyTorch's says is not repeated.
#pragma once

#include <cstdint>
#include <string_view>

#include "graph/op_name.h"
#include "ops/rules/op_facts.h"

namespace smelt {

// Thread-safe; the reference stays valid.
const OpFacts& facts_of(OpName op);

// Whose op it is.
enum class Library : uint8_t {
  aten,
  mkldnn,   // oneDNN's, which passes write
  own,      // smelt's, which logs have
  known,    // of PyTorch: it computes, and does nothing else
  foreign,  // nothing is known of it
};
Library library_of(OpName op);

// The layout that an op is for by its name, as PyTorch spells it: "Sparse", "QInt8"; else empty.
std::string_view special_layout(OpName op);

}  // namespace smelt
