// A running hash over what kernels are made of, the same in every process.
#pragma once

#include <cstdint>

#include "base/size.h"
#include "loops/kernel.h"

namespace smelt::loops {

class Hash {
 public:
  void add(uint64_t word) {
    state_ = (state_ ^ word) * 0x9e3779b97f4a7c15;
    state_ ^= state_ >> 32;
  }
  void add(const Size& size);
  void add(const Index& index);
  void add(const Inst& inst);
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325;
};

// All NaNs are one number, 0.0 and -0.0 are two.
uint64_t bits_of(double number);
// The same instruction: CSE and tests compare with it.
bool same(const Inst& a, const Inst& b);

}  // namespace smelt::loops
