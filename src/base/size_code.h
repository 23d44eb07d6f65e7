// Many sizes computed at once: a straight-line program over the values of symbols, in which what
// sizes have in common is computed once.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "base/polynomial.h"
#include "base/size.h"

namespace smelt {

class SizeCode {
 public:
  // The place of a size's value in what run() gives. Equal sizes share one.
  int32_t place_of(const Size& size);
  // As many values as there are places.
  size_t places() const { return start_.size(); }
  // Puts values into their places; `values` becomes as long as that takes. A check fails on a
  // division by 0, and where a symbol has no value.
  void run(std::span<const int64_t> symbols, std::vector<int64_t>& values) const;

 private:
  enum class Op : uint8_t { add, multiply, floor_div, modulo, min, max };
  struct Step {
    Op op;
    int32_t left, right, result;  // places
  };
  int32_t constant(int64_t value);
  int32_t symbol(int32_t index);
  int32_t apply(Op op, int32_t left, int32_t right);
  int32_t place_of(const Atom& atom);

  std::vector<int64_t> start_;  // by place: the value of a constant
  std::vector<Step> steps_;     // in the order they are done
  std::map<int64_t, int32_t> constants_;
  std::map<int32_t, int32_t> symbols_;  // by index: its place
  std::map<std::tuple<Op, int32_t, int32_t>, int32_t> known_;
};

}  // namespace smelt
