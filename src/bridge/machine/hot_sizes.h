// Programs of their own for sizes that come again. A program for all sizes is for each of them a bit
// slower than one that knows it; one that knows it has to be compiled, and may be no quicker. So
//
//   - sizes whose runs have taken several times as long as compiling did get a program of their own;
//   - from then on their runs go by either program in turn, until it is known which is quicker;
//   - there are so many such programs at a time, and one that is not used any more makes room.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/symbols.h"
#include "bridge/machine/linked_program.h"

namespace smelt {

class HotSizes {
 private:
  struct Entry;

 public:
  using Compile =
      std::function<std::shared_ptr<const LinkedProgram>(std::span<const int64_t> symbols)>;
  // Nanoseconds that such a program is expected to cost.
  using Cost = std::function<int64_t()>;
  // `most`: programs at a time. `compile` gives none, or throws, where there can be none.
  HotSizes(int most, Cost cost, Compile compile);
  ~HotSizes();
  HotSizes(const HotSizes&) = delete;
  HotSizes& operator=(const HotSizes&) = delete;

  // A run: which program it goes by, and what is noted at its end.
  struct Turn {
    std::shared_ptr<const LinkedProgram> own;  // none: by the one for all sizes
    std::shared_ptr<Entry> timed;              // none: nobody wants to know how long it takes
    int64_t start = 0;
  };
  // Compiles, if it is time to. Thread-safe, as everything that follows.
  Turn begin(std::span<const int64_t> symbols);
  // Of a run that has given its results.
  void end(const Turn& turn);

  // A sentence for each choice of sizes that has been tried: "batch = 32: a program of its own, 181
  // us instead of 204 us".
  std::vector<std::string> describe(const SymbolTable& symbols) const;

 private:
  std::shared_ptr<Entry> find(std::span<const int64_t> symbols);
  bool is_worth_it(const Entry& sizes) const;
  bool make_room();
  void make_own(const std::shared_ptr<Entry>& sizes);

  const size_t most_;
  const Cost cost_;
  const Compile compile_;
  mutable std::mutex mutex_;                    // of what follows
  std::vector<std::shared_ptr<Entry>> recent_;  // most recently used first
  uint64_t runs_ = 0;
};

}  // namespace smelt
