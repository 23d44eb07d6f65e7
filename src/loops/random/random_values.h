// The values a random kernel has computed so far, and random ops on them. See random_kernel.h for
// what is avoided: to that end each value carries how large it may be and, if it is exact, the
// power of two it is a multiple of.
#pragma once

#include <random>
#include <vector>

#include "loops/builder.h"

namespace smelt::loops {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t bound) { return static_cast<int64_t>(engine_() % bound); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  const T& one_of(const std::vector<T>& choices) {
    return choices[below(static_cast<int64_t>(choices.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

struct RandomValue {
  Expr expr;
  double most = 0;     // its magnitude is at most this, infinities and NaN aside
  int grid = 0;        // a multiple of 2^grid, if it is exact
  bool exact = false;  // every back end computes the very same
};

class RandomValues {
 public:
  // `draws`: among what is computed are random numbers of nodes.def.
  RandomValues(Builder& builder, Random& random, bool draws)
      : builder_(builder), random_(random), draws_(draws) {}

  void add(RandomValue value) { values_.push_back(std::move(value)); }
  void begin_stage(bool inner);
  bool empty() const { return values_.empty(); }

  RandomValue any();
  RandomValue any_exact();
  // A value of the dtype, cast if need be. To an integer only exact ones are.
  RandomValue of(DType dtype, bool exact);
  // With magnitude at most this; floating.
  RandomValue scaled(RandomValue value, double most);
  RandomValue integer(RandomValue value, DType dtype);
  void compute();  // adds the result of a random op
  void reduce(int64_t points);
  void scan(int64_t points);

 private:
  RandomValue number(DType dtype);
  RandomValue floating(RandomValue value, DType dtype);
  RandomValue boolean();
  void compute_floating(DType dtype);
  void compute_exactly(DType dtype);
  void compute_function(DType dtype);
  void compute_integer(DType dtype);
  void compute_boolean();
  void draw();
  RandomValue in_domain(Op op, RandomValue value);
  RandomValue result(Expr expr, double most, int grid, bool exact);

  Builder& builder_;
  Random& random_;
  const bool draws_;
  std::vector<RandomValue> values_;
  std::vector<RandomValue> reduced_;  // seen from the next stage on
  size_t outer_values_ = 0;
  bool inner_ = false;
};

}  // namespace smelt::loops
