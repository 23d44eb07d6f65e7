// What can be said, before a run, of what a tensor of a log will hold in it. Code that looks at
// contents (`.item()`, `if t:`, `x[mask]`) becomes part of a program where they are known, or are
// most often what they were.
#pragma once

#include "log/call_log.h"

namespace smelt {

// A counter or flag: it has one element, and is computed from tensors of one element alone.
bool is_single(const CallLog& log, LogValue value);
// Computed from whole numbers and truth values alone, none of them drawn (positions, tokens, masks):
// most often what it was.
bool is_steady(const CallLog& log, LogValue value);
// Made of numbers of the program text and of sizes alone, by ops that give the same each time: what
// is in it is no matter of the inputs.
bool is_fixed(const CallLog& log, LogValue value);
// Random numbers alone decide about it, and it may come out otherwise: `rand([]) < 0.1`, and not
// `rand([]) < 0`.
bool is_gamble(const CallLog& log, LogValue value);
// all() that is true, or any() that is not.
bool is_check(const CallLog& log, LogValue value, bool truth);
// The tensor that the number was read from; -1: no call gave it.
LogValue source_of_number(const CallLog& log, int32_t number);

}  // namespace smelt
