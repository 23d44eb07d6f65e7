// The objects that a trace knows, in the order in which it met them.
#pragma once

#include <deque>
#include <functional>

#include "capture/bytecode/flat_index.h"
#include "capture/bytecode/tracked.h"

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
    all_.emplace_back();
    places_.set(object, static_cast<uint32_t>(all_.size()));
    return all_.back();
  }
  void forget(PyObject* object) {
    *find(object) = {};
    places_.set(object, 0);
  }
  template <class Visit>
  void each(const Visit& visit) const {
    for (const Tracked& tracked : all_)
      if (tracked.object) visit(tracked.object.get(), tracked);
  }

 private:
  FlatIndex<PyObject*, std::hash<PyObject*>> places_;  // in all_, from 1 on
  std::deque<Tracked> all_;
};

}  // namespace smelt::bytecode
