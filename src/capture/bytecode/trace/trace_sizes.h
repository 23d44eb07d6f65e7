// Sizes of tensors that vary (account/varying.h): numbers like others, which each cached call reads
// from its tensors, and of which the sizes of what ops make are computed.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capture/bytecode/account/varying.h"
#include "capture/bytecode/trace/trace_numbers.h"

namespace smelt::bytecode {

class ProgramNumbers;

class TraceSizes : public TraceNumbers {
 public:
  // Before anything was traced: who says which vary.
  void vary_sizes(const VaryingDims* dims);
  // The number that the tensor's size is; 0: it is the same in each call. varies(): some size of it
  // is none.
  Ref size_of(PyObject* tensor, int dim);
  bool varies(PyObject* tensor);
  // Whether the number is computed from such sizes alone, as ops take them.
  bool is_size(Ref number) const;
  // The run depends on all sizes of this tensor, or on all that there are.
  void pin_sizes_of(PyObject* tensor);
  void pin_sizes(const std::string& why);
  // Asks the log whether the ops since the last call can be repeated, stops if not, and guards what
  // they rely on about sizes.
  void check_log(bool thorough = false) {
    StoppableLog::check_log(thorough);
    if (sizes.any()) follow_sizes();
  }

  Varying sizes;

 protected:
  ~TraceSizes() = default;

  std::vector<int> varying_dims(Ref tensor) const override;
  void vary(Ref tensor, std::span<const int> dims) override;
  void describe_sizes(const TraceResult& result, ProgramRequest& wanted, ProgramNumbers& numbers);
  void guard_sizes_of_program(TraceResult& result);

 private:
  void follow_sizes();
  void take_size_guards();
  void locate_guards();
  Ref number_of(const Size& size);
  Ref relation_of(const Guard& guard);
  std::optional<Size> size_in(const std::vector<Node>& nodes, Ref number) const;
};

}  // namespace smelt::bytecode
