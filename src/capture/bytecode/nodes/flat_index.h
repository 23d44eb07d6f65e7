// From keys to numbers other than 0, in one block of memory. A trace asks it for every object that
// it meets; with std::unordered_map that was a tenth of its time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace smelt::bytecode {

template <class Key, class Hash>
class FlatIndex {
 public:
  // 0: it is not there.
  uint32_t find(const Key& key) const { return slots_.empty() ? 0 : slots_[place_of(key)].number; }

  // 0 takes it away.
  void set(const Key& key, uint32_t number) {
    if (2 * used_ >= slots_.size()) grow();
    Slot& slot = slots_[place_of(key)];
    if (!slot.is_used) ++used_;
    slot = {key, number, true};
  }

 private:
  struct Slot {
    Key key{};
    uint32_t number = 0;
    bool is_used = false;
  };

  // Where it is, or would be.
  size_t place_of(const Key& key) const {
    const size_t mask = slots_.size() - 1;
    // The upper bits of the product depend on all of the hash.
    size_t place = (Hash()(key) * 0x9E3779B97F4A7C15u) >> (64 - std::countr_zero(slots_.size()));
    while (slots_[place].is_used && !(slots_[place].key == key)) place = (place + 1) & mask;
    return place;
  }

  void grow() {
    // Those that were taken away do not count.
    size_t live = 0;
    for (const Slot& slot : slots_) live += slot.number != 0;
    std::vector<Slot> old =
        std::exchange(slots_, std::vector<Slot>(std::bit_ceil(std::max<size_t>(4 * live, 64))));
    used_ = 0;
    for (const Slot& slot : old)
      if (slot.number != 0) {
        slots_[place_of(slot.key)] = slot;
        ++used_;
      }
  }

  std::vector<Slot> slots_;  // a power of two of them
  size_t used_ = 0;
};

}  // namespace smelt::bytecode
