// The sizes of tensors that may be others in the next call, in a trace. Which dimensions those are
// is known before (VaryingDims): they have changed before, or the user has said so. Such a size is a
// path like others (NodeKind::size), so that what is computed from it is computed again by each
// call. The sizes of what ops make of such tensors are known to the log as expressions of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/varying_sizes.h"
#include "capture/bytecode/nodes/node.h"

namespace smelt::bytecode {

// Which dimensions of tensors from outside vary.
class VaryingDims {
 public:
  virtual ~VaryingDims() = default;
  // Of the tensor that the path leads to, as path_text() writes it; `is_state`: it is a parameter
  // or buffer of a module.
  virtual std::vector<int> of(PyObject* tensor, const std::string& path, bool is_state) const = 0;
  // What smelt.mark_dynamic was given as the dimension's name, which may be empty; nothing: it has
  // not marked it.
  virtual std::optional<std::string> mark(PyObject* tensor, int dim) const = 0;
};

// A dimension that varies, and whether smelt.mark_dynamic has said so.
struct VariedDim {
  int symbol = 0;
  std::string text;  // "x.shape[0]", or the name that it was given
  bool is_marked = false;
};

// A symbol that is what it was from some point of the run on.
struct FixedSize {
  int symbol = 0;
  std::string why;      // "a loop over it, which is unrolled"
  std::string where;    // "model.py:12"; may be empty
  size_t position = 0;  // of the trace's guards then
};

inline constexpr char kUnrolled[] = "a loop over it, which is unrolled";

struct Varying {
  const VaryingDims* dims = nullptr;          // nullptr: none do
  std::vector<Ref> symbols;                   // by symbol: its size
  std::unordered_map<int64_t, Size> of_hint;  // the symbol that has this value now
  std::unordered_map<Ref, Size> of_ref;       // expressions of numbers
  std::unordered_map<LogValue, SymbolicDims> inputs;
  std::unordered_map<std::string, Ref> known;  // numbers of expressions, by their text
  size_t guards = 0;                           // of the log that the trace has too
  size_t late = 0;                             // likewise, of sizes that contents decide
  bool are_counted = false;                    // the log has some of those
  std::vector<VariedDim> dims_seen;
  std::vector<FixedSize> fixed;
  const char* reason = nullptr;  // what is being done that takes sizes as they are, if it is known
  std::string refusal;           // why none vary any more: all are what they are in this call

  bool any() const { return !symbols.empty() && refusal.empty(); }
};

}  // namespace smelt::bytecode
