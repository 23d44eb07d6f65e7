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

class TraceSizes;

// While one lives, sizes that are taken as they are are so for this reason; nullptr: for none that
// is known better than before.
class FixingSizes {
 public:
  FixingSizes(TraceSizes& trace, const char* reason);
  ~FixingSizes();
  FixingSizes(const FixingSizes&) = delete;
  FixingSizes& operator=(const FixingSizes&) = delete;

 private:
  TraceSizes& trace_;
  const char* before_;
};

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
  // The same for a number that ops are to take as a size. One that the program reads, or that has
  // changed before, becomes such a size, if it may.
  bool take_as_size(Ref number);
  // Whether it will, if it comes to that; a number that the program reads has been taken then.
  bool may_be_size(Ref number);
  // Whether sizes that contents decide may be numbers of the program: they would be guessed else,
  // and are another one in each run where others vary too, or where a guess was wrong.
  bool may_count() const;
  // The run depends on all sizes of this tensor, on its strides too, or on all that there are.
  void pin_sizes_of(PyObject* tensor);
  void pin_layout_of(PyObject* tensor);
  void pin_sizes(const std::string& why);
  // Asks the log whether the ops since the last call can be repeated, stops if not, and guards what
  // they rely on about sizes.
  void check_log(bool thorough = false) {
    StoppableLog::check_log(thorough);
    if (sizes.any() || sizes.are_counted) follow_sizes();
  }

  // Which dimensions vary no more, a sentence each, and why; `is_marked`: smelt.mark_dynamic has
  // said of it that it does.
  struct FixedDim {
    std::string sentence;
    std::string remedy;
    bool is_marked = false;
  };
  std::vector<FixedDim> fixed_dims() const;
  bool fixes_sizes() const { return !sizes.fixed.empty(); }

  Varying sizes;

 protected:
  ~TraceSizes() = default;

  std::vector<int> varying_dims(Ref tensor) const override;
  void vary(Ref tensor, std::span<const int> dims) override;
  void describe_sizes(const TraceResult& result, ProgramRequest& wanted, ProgramNumbers& numbers);
  void guard_sizes_of_program(TraceResult& result);
  void note_guard(Ref ref, uint16_t bits, bool truth) override;

 private:
  void take_late_sizes();
  void add_late(const Size& size, Ref number);
  void add_symbol(const Size& size, Ref number);
  struct PartsOfSize {
    std::vector<Ref> symbols;
    std::vector<Ref> known;
  };
  std::optional<PartsOfSize> parts_of_size(Ref number) const;
  bool has_expression(const Node& node) const;
  bool take_number(Ref number);
  // An expression that was found to be 0, and will be.
  void note_fixed(const Size& zero, std::string why, std::string where);
  void note_relation(const Guard& guard);
  std::string where() const;
  void follow_sizes();
  void take_size_guards();
  void locate_guards();
  Ref number_of(const Size& size);
  Ref relation_of(const Guard& guard);
  std::optional<Size> size_in(const std::vector<Node>& nodes, Ref number) const;
};

}  // namespace smelt::bytecode
