// The objects that a trace knows.
#pragma once

#include <deque>
#include <functional>
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
    return place == 0 ? nullptr : &all_[place - 1];
  }
  const Tracked* find(PyObject* object) const {
    const uint32_t place = places_.find(object);
    return place == 0 ? nullptr : &all_[place - 1];
  }
  Tracked& add(PyObject* object) {
    if (Tracked* known = find(object)) return *known;
    if (free_.empty()) {
      all_.emplace_back();
      free_.push_back(static_cast<uint32_t>(all_.size()));
    }
    const uint32_t place = free_.back();
    free_.pop_back();
    places_.set(object, place);
    return all_[place - 1];
  }
  // What was known of an object, which is not known any more. To drop that may run code.
  Tracked take(PyObject* object) {
    const uint32_t place = places_.find(object);
    places_.set(object, 0);
    free_.push_back(place);
    return std::exchange(all_[place - 1], {});
  }
  template <class Visit>
  void each(const Visit& visit) const {
    for (const Tracked& tracked : all_)
      if (tracked.object) visit(tracked.object.get(), tracked);
  }

 private:
  FlatIndex<PyObject*, std::hash<PyObject*>> places_;  // in all_, from 1 on
  std::deque<Tracked> all_;
  std::vector<uint32_t> free_;  // places
};

}  // namespace smelt::bytecode
