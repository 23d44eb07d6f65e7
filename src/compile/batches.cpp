// Waking threads costs as much as a small kernel; the 150 updates of an optimizer pay it once.
//
// Kernels of a batch run at the same time, so none may read what another writes, or write in place
// when another may still fail. What a batch reads is released when all of it is done: it does not
// grow where that would keep much memory while new memory is taken.

#include "compile/batches.h"

#include <set>

#include "base/dtype.h"
#include "compile/reuse.h"
#include "graph/alias.h"

namespace smelt {
namespace {

constexpr int64_t kMuch = 256 * 1024;  // bytes

// What a batch, or one kernel, does with memory. Values are those that own it.
struct Footprint {
  const Backend* backend = nullptr;
  Device device;
  std::set<ValueId> reads, writes;
  int64_t taken = 0;  // bytes of new memory
  int64_t held = 0;   // bytes of what it reads and the program has made
  bool in_place = false;
  bool fails = false;
};

class Batches {
 public:
  Batches(const Graph& graph, const Schedule& schedule, const std::vector<ValueId>& in_place)
      : graph_(graph), schedule_(schedule), in_place_(in_place), roots_(view_roots(graph)) {}

  std::vector<int> run() const {
    const int count = static_cast<int>(schedule_.order.size());
    std::vector<int> ends(count);
    for (int first = 0, next = 0; first < count; first = next) {
      next = first + 1;
      if (schedule_.order[first].kernel >= 0) {
        Footprint batch = footprint(schedule_.order[first]);
        while (next < count && schedule_.order[next].kernel >= 0 &&
               joins(batch, footprint(schedule_.order[next])))
          ++next;
      }
      for (int i = first; i < next; ++i) ends[i] = next - 1;
    }
    return ends;
  }

 private:
  int64_t bytes(ValueId value) const {
    const TensorType& type = graph_.type(value);
    return graph_.symbols.hint(type.numel()) * bytes_of(type.dtype);
  }

  Footprint footprint(const Unit& unit) const {
    const ScheduledKernel& scheduled = schedule_.kernels[unit.kernel];
    Footprint made;
    made.backend = scheduled.backend;
    made.device = scheduled.device;
    made.fails = can_fail(scheduled);
    const auto read = [&](ValueId value) {
      const ValueId owner = owner_of(roots_[value]);
      made.reads.insert(owner);
      if (graph_.values[owner].node >= 0) made.held += bytes(owner);
    };
    for (size_t i = 0; i < scheduled.buffers.size(); ++i) {
      const ValueId value = scheduled.buffers[i];
      if (value < 0) continue;
      // What an updated one begins as is copied before the batch runs.
      if (scheduled.bases[i] >= 0) read(scheduled.bases[i]);
      if (scheduled.kernel.buffers[i].kind == loops::Buffer::Kind::input) {
        read(value);
      } else {
        made.writes.insert(owner_of(value));
        made.in_place |= in_place_[value] >= 0;
        if (in_place_[value] < 0) made.taken += bytes(value);
      }
    }
    return made;
  }
  ValueId owner_of(ValueId value) const {
    return in_place_[value] >= 0 ? roots_[in_place_[value]] : value;
  }

  static bool meet(const std::set<ValueId>& a, const std::set<ValueId>& b) {
    for (const ValueId value : a)
      if (b.contains(value)) return true;
    return false;
  }

  // Adds the kernel to the batch, if it may be there.
  static bool joins(Footprint& batch, const Footprint& kernel) {
    if (batch.backend != kernel.backend || batch.device != kernel.device ||
        meet(batch.writes, kernel.reads) || meet(batch.reads, kernel.writes) ||
        meet(batch.writes, kernel.writes))
      return false;
    if ((batch.fails && kernel.in_place) || (batch.in_place && kernel.fails)) return false;
    if (batch.held > kMuch && kernel.taken > kMuch) return false;
    batch.reads.insert(kernel.reads.begin(), kernel.reads.end());
    batch.writes.insert(kernel.writes.begin(), kernel.writes.end());
    batch.taken += kernel.taken;
    batch.held += kernel.held;
    batch.in_place |= kernel.in_place;
    batch.fails |= kernel.fails;
    return true;
  }

  const Graph& graph_;
  const Schedule& schedule_;
  const std::vector<ValueId>& in_place_;
  const std::vector<ValueId> roots_;
};

}  // namespace

std::vector<int> batch_ends(const Graph& graph, const Schedule& schedule,
                            const std::vector<ValueId>& in_place) {
  return Batches(graph, schedule, in_place).run();
}

}  // namespace smelt
