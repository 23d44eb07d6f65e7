// What the sizes of a program come to in a run. They are computed together, once for each choice of
// values of the program's symbols, and kept for the next runs with the same.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/arg.h"
#include "base/size_code.h"
#include "base/symbols.h"
#include "compile/memory_plan.h"
#include "runtime/program.h"

namespace smelt {

struct RunSizes {
  std::vector<int64_t> symbols;
  const Guard* broken = nullptr;  // one that these values break: nothing else is there then
  std::vector<int64_t> values;
  std::vector<c10::IValue> arguments;
  MemoryPlan arena;  // empty: there is none

  c10::IntArrayRef at(int32_t place, size_t count) const { return {values.data() + place, count}; }
};

// While a program is linked it is told what will be asked for; then it gives that for each run.
// Thread-safe from then on.
class SizesOfRuns {
 public:
  // Its guards and its arena; the program stays where it is.
  explicit SizesOfRuns(const Program& program) : program_(program) {}
  SizesOfRuns(const SizesOfRuns&) = delete;
  SizesOfRuns& operator=(const SizesOfRuns&) = delete;

  // Where the values of these sizes will be, one behind the other.
  int32_t add(std::span<const Size> sizes);
  // An argument of an op, made anew for other sizes: which of RunSizes::arguments it is.
  using MakeArgument = std::function<c10::IValue(std::span<const int64_t> symbols)>;
  size_t add_argument(const Arg& arg, const c10::Type* type, MakeArgument make);
  // That was all.
  void finish();

  std::shared_ptr<const RunSizes> of(std::span<const int64_t> symbols) const;

 private:
  std::shared_ptr<const RunSizes> make(std::span<const int64_t> symbols) const;
  void plan_arena(RunSizes& sizes) const;

  const Program& program_;
  SizeCode code_;
  std::vector<int32_t> places_;  // by place in RunSizes::values: that in the code's
  std::map<std::vector<int32_t>, int32_t> known_;  // by places in the code's: where they were added
  struct Argument {
    Arg arg;
    const c10::Type* type;
    MakeArgument make;
  };
  std::vector<Argument> arguments_;
  std::shared_ptr<const RunSizes> fixed_;  // of a program without symbols

  mutable std::mutex mutex_;                                     // of what follows
  mutable std::vector<std::shared_ptr<const RunSizes>> recent_;  // most recently used first
};

}  // namespace smelt
