// The guards of a segment as a flat program over the frame's slots. Tier 0 compares what implies
// all the rest: identity of what the slots hold, version tags of the dicts and types that were
// visited, tensor metadata (guard_tier0.h). When it fails, tier 1 walks every path and checks every
// guard; if those hold, tier 0 is armed again with what was found.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capture/bytecode/nodes/node.h"

namespace smelt::bytecode {

class GuardProgram {
 public:
  // Takes the nodes' paths and guards; the result's steps, exit and program_inputs say which nodes'
  // objects are wanted.
  explicit GuardProgram(const TraceResult& result);
  ~GuardProgram();

  // The nodes whose objects a cached call needs: paths and scalars, in the order of check()'s
  // registers. The program's inputs and scalars come first, each once.
  const std::vector<Ref>& wanted() const;

  // True if all guards hold; then registers[i] is the object of wanted()[i], a new reference each.
  // `slots` has the frame's locals, cells and stack; unset ones are nullptr. Runs no code of the
  // user's, leaves no error set, and may be called by several threads (under the GIL).
  // `function`: that the frame runs, if it is known.
  bool check(PyObject* const* slots, size_t count, PyObject** registers,
             PyObject* function = nullptr);

  // Why check() fails for these slots: "self.scale: was 2.0, is 3.0"; empty if it does not.
  std::string explain(PyObject* const* slots, size_t count) const;

  // Paths of numbers, as path_text() writes them, that are guarded by value and have another one
  // now.
  std::vector<std::string> changed_numbers(PyObject* const* slots, size_t count) const;

  // Sizes of tensors that are others now: the path to the tensor, and the dimension.
  struct ChangedSize {
    std::string path;
    int dim;
  };
  std::vector<ChangedSize> changed_sizes(PyObject* const* slots, size_t count) const;

  // All guards hold but, perhaps, those on the sizes of tensors.
  bool holds_for_other_sizes(PyObject* const* slots, size_t count) const;

  size_t size() const;  // guards
  // One line per guard, "self.layers[0].weight: f32[3, 4] requires_grad".
  std::vector<std::string> lines() const;

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace smelt::bytecode
