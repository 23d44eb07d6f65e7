// What the op log must know of an op beyond op_info.h, looked up once.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "capture/dispatch/op_info.h"

namespace smelt {

struct LogFacts {
  // The result's shape or a host value depends on contents, always or only if
  //   an argument in a list is a mask;
  //   this integer argument was not given.
  bool data_dependent = false;
  bool masks_only = false;
  int unless_given = -1;
  // What depends on contents is the shape of results alone, not their number.
  bool dynamic_shapes = false;
  // Gives the contents of a tensor as a number: item().
  bool gives_number = false;
  // Hands over a tensor that C++ code filled: torch.tensor([1, 2]).
  bool lifts = false;
  // Exchanges a tensor's storage; gives it another size.
  bool sets_storage = false;
  bool resizes = false;
  bool is_detach = false;  // in place
  // Makes a tensor of its arguments' types alone; Python's binding calls such below autograd.
  bool ignores_autograd = false;
  // Its numbers decide about nothing but values: no shape, nothing on the host.
  bool takes_scalars = false;
  // It may take tensors whose shapes depend on contents: what it gives has such a shape too.
  bool takes_any_shape = false;
  // It gives one element whatever the shapes are, always or if this argument (-1) is no 0.
  bool reduces_all = false;
  int reduction = -1;
  // Arguments that are changed although the schema says nothing of it, and the argument that must
  // be true for it (-1: always).
  std::vector<int> silent_writes;
  int silent_when = -1;

  // The shape of the result is one, whatever the arguments' are.
  bool gives_one(const std::vector<c10::IValue>& arguments) const;
  bool depends_on_contents(const std::vector<c10::IValue>& stack, size_t first) const;
};

// Thread-safe; the reference stays valid.
const LogFacts& log_facts(const OpInfo& op);

}  // namespace smelt
