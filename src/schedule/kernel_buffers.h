// The tensors that a kernel reads and writes, as its buffers.
#pragma once

#include <map>

#include "ops/meaning.h"
#include "schedule/roles.h"
#include "schedule/schedule.h"

namespace smelt {

class KernelBuffers {
 public:
  KernelBuffers(const Graph& graph, const Roles& roles, ScheduledKernel& made,
                loops::Builder& builder)
      : graph_(graph), roles_(roles), made_(made), builder_(builder) {}

  // An element from memory, the value's own or of what it is a view of; or a number.
  Expr load(ValueId value, const Indices& at);
  int32_t of(ValueId value, loops::Buffer::Kind kind);
  // The same for a value that begins as another; -1: as zeros.
  int32_t updated(ValueId value, ValueId base);
  int32_t scratch(DType dtype, const Size& elements);
  void store(ValueId value, const Indices& at, Expr element);

 private:
  Expr param(ValueId number);

  const Graph& graph_;
  const Roles& roles_;
  ScheduledKernel& made_;
  loops::Builder& builder_;
  std::map<ValueId, int32_t> numbers_;
};

// The name of a kernel that computes these nodes.
std::string kernel_name(const Graph& graph, const std::vector<NodeId>& nodes);

}  // namespace smelt
