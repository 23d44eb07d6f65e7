// How a run of a program ended, for whoever has to go on from there.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "base/error.h"

namespace smelt {

struct RunOutcome {
  enum class Kind : uint8_t {
    done,           // the outputs are there
    not_for_these,  // nothing is changed: something else has to compute it, for these inputs
    mispredicted,   // nothing is changed: what the code was traced for does not hold
    failed,         // an op has raised an error
  };

  Kind kind = Kind::not_for_these;
  // Something has happened that the caller can see: the run must not be made again. If it has
  // failed, all is as after eager's ops up to the one that did.
  bool changed = false;
  size_t position = 0;  // failed and changed: the item of the log that failed
  // Failed and changed: those that there are by then, others undefined.
  std::vector<at::Tensor> outputs;
  std::exception_ptr error;  // mispredicted, failed; not for these: what a kernel had to say

  static RunOutcome done(std::vector<at::Tensor> outputs, bool changed = false) {
    return {Kind::done, changed, 0, std::move(outputs), nullptr};
  }
  // These three inside of a handler, with the exception that it handles. Handlers are those of
  // std::exception alone: what ends a thread goes on.
  static RunOutcome not_for_these() {
    return {Kind::not_for_these, false, 0, {}, std::current_exception()};
  }
  static RunOutcome mispredicted() {
    return {Kind::mispredicted, false, 0, {}, std::current_exception()};
  }
  static RunOutcome failed(bool changed) {
    return {Kind::failed, changed, 0, {}, std::current_exception()};
  }

  bool is_done() const { return kind == Kind::done; }
  // The outputs; if there are none, the error is thrown.
  std::vector<at::Tensor> take() && {
    if (error) std::rethrow_exception(error);
    SMELT_CHECK(is_done(), "a run that nobody made was asked for its outputs");
    return std::move(outputs);
  }
};

// Whether a run that fails puts back what it has changed, as far as that can be done, or leaves it
// and says where it is.
enum class OnFailure : uint8_t { restore, leave };

}  // namespace smelt
