// Each kernel's units stand behind those of the others on one line, each as long as it is dear. The
// line is cut into pieces of equal length, and threads take one after the other.
#include "runtime/share_units.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

namespace smelt {
namespace {

// Cycles below which waking another thread costs more than it brings.
constexpr int64_t kWorthAThread = 30'000;
// Pieces of work per thread: enough that threads which were held up do not hold up the others.
constexpr int64_t kPieces = 8;

// The values of a kernel's sizes; few kernels have more than fit here.
class SizeValues {
 public:
  SizeValues(const UnitLaunch& launch, std::span<const int64_t> symbols) : known_(launch.sizes) {
    const UnitKernel& kernel = *launch.kernel;
    const size_t count = kernel.sizes.size();
    if (known_) {
      units_ = known_[count];
      cost_ = known_[count + 1];
    } else {
      if (count > few_.size()) many_.resize(count);
      int64_t* const values = many_.empty() ? few_.data() : many_.data();
      for (size_t i = 0; i < count; ++i) values[i] = kernel.sizes[i].evaluate(symbols);
      units_ = kernel.units.evaluate(symbols);
      cost_ = kernel.unit_cost.evaluate(symbols);
    }
    cost_ = std::max<int64_t>(1, cost_);
  }
  const int64_t* data() const {
    return known_ ? known_ : many_.empty() ? few_.data() : many_.data();
  }
  int64_t units() const { return units_; }
  int64_t cost() const { return cost_; }

 private:
  const int64_t* known_;
  int64_t units_ = 0, cost_ = 1;
  std::array<int64_t, 8> few_;
  std::vector<int64_t> many_;
};

std::byte* scratch_for(const UnitKernel& kernel, Host& host) {
  return kernel.scratch_bytes > 0 ? host.scratch(kernel.scratch_bytes) : nullptr;
}

// The units of one kernel.
bool run_units(const UnitKernel& kernel, void* const* buffers, const SizeValues& sizes,
               const uint64_t* params, Host& host) {
  const int64_t units = sizes.units();
  if (units == 0) return true;
  const auto run = [&](int64_t begin, int64_t end) {
    return kernel.run(buffers, sizes.data(), params, begin, end, scratch_for(kernel, host));
  };
  const int64_t grain = std::max<int64_t>(1, kWorthAThread / sizes.cost());
  if (kernel.ordered || units <= grain) return run(0, units);
  const int64_t parts = std::min<int64_t>(host.threads(), (units + grain - 1) / grain);
  if (parts <= 1) return run(0, units);
  std::atomic<bool> good = true;
  host.run(parts, [&](int64_t part) {
    if (!run(units * part / parts, units * (part + 1) / parts))
      good.store(false, std::memory_order_relaxed);
  });
  return good;
}

bool run_alone(const UnitLaunch& launch, std::span<const int64_t> symbols, Host& host) {
  const UnitKernel& kernel = *launch.kernel;
  const SizeValues sizes(launch, symbols);
  if (!kernel.finish) return run_units(kernel, launch.buffers, sizes, launch.params, host);
  std::vector<void*> buffers(launch.buffers, launch.buffers + kernel.buffers);
  // Units of a kernel with a second part use no scratch: this one stays as it is.
  buffers.push_back(host.scratch(kernel.partial_bytes));
  return run_units(kernel, buffers.data(), sizes, launch.params, host) &&
         kernel.finish(buffers.data(), sizes.data(), launch.params, 0, kernel.finish_units,
                       nullptr);
}

// A kernel on the line.
struct Work {
  UnitLaunch what;
  SizeValues sizes;
  int64_t units = 0, cost = 1;
  int64_t whole = 1;  // of one that can't be cut: how many units are its only one
  int64_t begin = 0;  // on the line

  int64_t end() const { return begin + units * cost; }
  // Runs the units that begin in [from, to) of the line.
  bool run(int64_t from, int64_t to, Host& host) const {
    const auto unit_at = [&](int64_t place) {
      return std::clamp<int64_t>((place - begin + cost - 1) / cost, 0, units);
    };
    const int64_t first = from <= begin ? 0 : unit_at(from), last = to <= begin ? 0 : unit_at(to);
    if (first >= last) return true;
    return what.kernel->run(what.buffers, sizes.data(), what.params, first, last * whole,
                            scratch_for(*what.kernel, host));
  }
};

Work work_of(const UnitLaunch& launch, std::span<const int64_t> symbols, int64_t begin) {
  const UnitKernel& kernel = *launch.kernel;
  Work work{.what = launch, .sizes = SizeValues(launch, symbols), .begin = begin};
  work.units = work.sizes.units();
  work.cost = work.sizes.cost();
  if (kernel.ordered && work.units > 0) {
    work.whole = work.units;
    work.cost *= work.units;
    work.units = 1;
  }
  return work;
}

}  // namespace

bool share_units(std::span<const UnitLaunch> launches, std::span<const int64_t> symbols,
                 Host& host) {
  if (launches.size() == 1) return run_alone(launches[0], symbols, host);
  std::vector<Work> works;
  works.reserve(launches.size());
  int64_t total = 0;
  for (const UnitLaunch& launch : launches) {
    if (launch.kernel->finish) {  // has a second part, which waits for all of the first
      if (!run_alone(launch, symbols, host)) return false;
      continue;
    }
    works.push_back(work_of(launch, symbols, total));
    total = works.back().end();
  }
  std::atomic<bool> good = true;
  const auto run = [&](int64_t from, int64_t to) {
    // The last that begins at `from` or before, or else the first.
    auto work = std::upper_bound(works.begin(), works.end(), from,
                                 [](int64_t place, const Work& w) { return place < w.begin; });
    if (work != works.begin()) --work;
    for (; work != works.end() && work->begin < to; ++work)
      if (!work->run(from, to, host)) good.store(false, std::memory_order_relaxed);
  };
  const int64_t most = total / kWorthAThread;
  const int64_t threads = most > 1 ? host.threads() : 1;
  const int64_t pieces = std::min(most, kPieces * threads);
  if (pieces <= 1 || threads == 1) {
    run(0, total);
    return good;
  }
  host.run(pieces,
           [&](int64_t piece) { run(total * piece / pieces, total * (piece + 1) / pieces); });
  return good;
}

}  // namespace smelt
