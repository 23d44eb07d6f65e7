// Numbers that are not settled: each cached call computes them again, or the tensor program does,
// which reads them from tensors (`.item()`) or takes them as run-time scalars.
#pragma once

#include <string>
#include <unordered_set>

#include "capture/bytecode/trace/trace_uses.h"

namespace smelt::bytecode {

class TraceNumbers : public TraceUses {
 public:
  // All operands are atoms. Folded (0) if none of them has a ref.
  Ref scalar(ScalarOp op, int arg, Value a, Value b, PyObject* result);
  // function(a) or function(a, b), where it is one in C that depends on nothing else.
  Ref scalar_call(PyObject* function, Value a, Value b, PyObject* result);
  // The number that the tensor program reads at `item` (TensorLog::take_number). What is computed
  // from it the program computes too. Where the run depends on it, that is a guess.
  Ref number(PyObject* object, int32_t item);
  // Whether an op shall take this number as what it is in each call. Numbers in the root's slots
  // do, those that the run itself changes, and those that have changed since an earlier trace; so
  // does what is computed from such. All others are part of the program.
  bool is_runtime_scalar(Value number) const;
  bool is_lazy_number(Value value) const;  // one that a container can have as what it will be

  Object code;  // of the root's frame, for the names of its variables
  // Paths of numbers that change, as path_text() writes them; nullptr: no run-time scalars.
  const std::unordered_set<std::string>* changing = nullptr;

 protected:
  ~TraceNumbers() = default;

  void note_changing(Ref stored);
  // Whether something that the number is computed of has been another one before, or is a size that
  // varies.
  bool has_changed(Ref number) const;

 private:
  bool prepare_operand(Value number);
  bool is_changing(Ref ref) const;
  bool is_known_to_change(Ref path) const;

  std::unordered_set<Ref> changed_numbers_;  // paths of numbers from which others were stored
};

}  // namespace smelt::bytecode
