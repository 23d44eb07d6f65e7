// Rows shorter than a vector, joined to fill it.
//
// Where the last dimension has fewer points than a vector has lanes (the channels of a group, last
// in memory), a vector along it leaves lanes unused. The last two dimensions can be one: its point
// f is (f // row, f % row) of the two, and a vector holds several rows. Accesses that step through
// rows of one vector are done row by row (memory.cpp); vectors begin at whole rows.
#pragma once

#include <cstdint>
#include <optional>

#include "loops/kernel.h"

namespace smelt::cpu {

// How an access moves along a dimension that is several rows: `row` points next to each other, or
// in one place; then the next row.
struct RowWalk {
  int64_t row = 0;
  Size stride = 0;  // from row to row, in elements
  bool along = false;
};
// Nothing where it does not go by rows, or rows don't fill up a vector. Of the terms of the index
// only those that depend on the dimension are looked at.
std::optional<RowWalk> row_walk(const loops::Index& index, int dim, int lanes);

// Does some access go by rows, so that vectors must begin where one begins?
bool goes_by_rows(const loops::Kernel& kernel, int dim, int lanes);

// The kernel with its last two dimensions joined; nothing where the rows of `lanes` or fewer points
// don't fill up a vector, or their order matters.
std::optional<loops::Kernel> join_short_rows(const loops::Kernel& kernel, int lanes);

}  // namespace smelt::cpu
