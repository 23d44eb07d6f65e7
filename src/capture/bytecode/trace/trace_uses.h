// The verbs by which a run comes to depend on more than where an object was found: settle, use, own.
// trace.h says of each what it means.
#pragma once

#include <span>

#include "capture/bytecode/trace/trace_reads.h"

namespace smelt::bytecode {

class TraceUses : public TraceReads {
 public:
  // The run depends on this value itself, all of it: atoms by value, fixed objects by identity,
  // tensors by metadata, tuples, lists, dicts and sets by their elements. Stops for what can't be
  // compared.
  void use(Value value);
  void guard_truth(Value value, bool truth);  // atoms and lazy scalars; containers by length
  // All that is in the list, set or deque is guarded now: it can be changed and read freely.
  void own(Value container);
  // Numbers in these containers, and in containers in them, are settled: C code looks at them.
  void settle_inside(std::span<const Value> containers);
  void drop_contents(Value list);  // all of them are about to go: what they were does not matter

 protected:
  ~TraceUses() = default;

  size_t lazy_elements_ = 0;  // that there have been

 private:
  void use_outside(Value value);
  void use_elements(Value value);

  int use_depth_ = 0;
};

}  // namespace smelt::bytecode
