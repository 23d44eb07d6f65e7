// The objects that a trace knows.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "capture/bytecode/account/tracked.h"
#include "capture/bytecode/nodes/flat_index.h"

namespace smelt::bytecode {

class TrackedObjects {
 public:
  // nullptr: it is not known. Valid until the object is forgotten.
  Tracked* find(PyObject* object) {
    const uint32_t place = places_.find(object);
    return place == 0 ? nullptr : &at(place);
  }
  const Tracked* find(PyObject* object) const {
    const uint32_t place = places_.find(object);
    return place == 0 ? nullptr : &at(place);
  }
  Tracked& add(PyObject* object) {
    if (Tracked* known = find(object)) return *known;
    const uint32_t place = take_place();
    places_.set(object, place);
    return at(place);
  }
  // What was known of an object, which is not known any more. To drop that may run code.
  Tracked take(PyObject* object) {
    const uint32_t place = places_.find(object);
    places_.set(object, 0);
    free_.push_back(place);
    return std::exchange(at(place), {});
  }
  template <class Visit>
  void each(const Visit& visit) const {
    for (uint32_t place = 1; place <= size_; ++place)
      if (const Tracked& tracked = at(place); tracked.object) visit(tracked.object.get(), tracked);
  }

 private:
  static constexpr uint32_t kBlock = 32;

  Tracked& at(uint32_t place) { return blocks_[(place - 1) / kBlock][(place - 1) % kBlock]; }
  const Tracked& at(uint32_t place) const {
    return blocks_[(place - 1) / kBlock][(place - 1) % kBlock];
  }
  uint32_t take_place() {
    if (free_.empty()) {
      if (size_ % kBlock == 0) blocks_.push_back(std::make_unique<Tracked[]>(kBlock));
      return ++size_;
    }
    const uint32_t place = free_.back();
    free_.pop_back();
    return place;
  }

  FlatIndex<PyObject*, std::hash<PyObject*>> places_;  // from 1 on
  std::vector<std::unique_ptr<Tracked[]>> blocks_;     // which stay where they are
  uint32_t size_ = 0;
  std::vector<uint32_t> free_;  // places
};

}  // namespace smelt::bytecode
