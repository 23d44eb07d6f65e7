// Numbers that may be others in the next run of a log. Whoever calls an op with such a number hands
// over a stand-in: a symbolic number, which PyTorch's argument parser takes wherever it takes an
// int or a float. The log puts the number itself in its place before the op is computed, and writes
// down where it stood. Whoever else asks a stand-in for its value gets it, and the StandIns know:
// then the value is part of what was traced.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Scalar.h>
#include <c10/core/SymNodeImpl.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "aten/op_info.h"
#include "base/log_ids.h"

namespace smelt {

class StandIns {
 public:
  struct Found {
    ScalarId id;
    c10::Scalar value;
    bool is_size = false;  // ops may take it where they take sizes
  };
  virtual ~StandIns() = default;
  // Nothing if it is none of these.
  virtual std::optional<Found> find(const c10::SymNodeImpl& node) = 0;
  // The argument parser makes a tensor of a symbolic number with any value in it.
  virtual std::optional<Found> find(const at::Tensor& number) = 0;
  // The trace depends on the value.
  virtual void look_at(ScalarId id) = 0;
  // An op takes it as a size, and not only as a number to compute with.
  virtual void take_as_size(ScalarId) {}
  // An op has been called.
  virtual void reach() = 0;
};

// Puts the numbers in the place of their stand-ins. Returns where they were; those that the op may
// not take at run time, as they decide about shapes or the like, are looked at.
std::vector<TakenNumber> take_stand_ins(StandIns& stand_ins, const OpInfo& op,
                                        std::vector<c10::IValue>& stack, size_t first);

// Of an argument of an op: is it a Scalar, or a list of them?
bool takes_numbers(const c10::TypePtr& type);

// The 0-dim tensor that the argument parser makes of a number, and back.
at::Tensor number_as_tensor(const c10::Scalar& number);
c10::Scalar scalar_in(const at::Tensor& tensor);

}  // namespace smelt
