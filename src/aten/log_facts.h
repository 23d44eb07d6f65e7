// What the op log must know of an op: facts of its row, and what its schema says.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "base/arg.h"

namespace smelt {

struct OpInfo;

struct LogFacts {
  // The result's shape or a host value depends on contents, always or as OpFacts::by_masks_only and
  // OpFacts::unless_given say.
  bool data_dependent = false;
  // What depends on contents is the shape of results alone, not their number.
  bool dynamic_shapes = false;
  // Makes a tensor of its arguments' types alone; Python's binding calls such below autograd.
  bool ignores_autograd = false;
  // Its numbers decide about nothing but values: no shape, nothing on the host.
  bool takes_scalars = false;
  // It may take tensors whose shapes depend on contents: what it gives has such a shape too.
  bool takes_any_shape = false;
  // It gives one element whatever the shapes are if this argument (-1: none) is no 0.
  int reduction = -1;
  // Arguments that are changed although the schema says nothing of it, and the argument that must
  // be true for it (-1: always).
  std::vector<int> silent_writes;
  int silent_when = -1;
};

// The shape of the result is one, whatever the arguments' are.
bool gives_one(const OpInfo& op, const std::vector<Arg>& args);
bool depends_on_contents(const OpInfo& op, const std::vector<c10::IValue>& stack, size_t first);

// Of an op of which all else is known already.
LogFacts make_log_facts(const OpInfo& op);

}  // namespace smelt
