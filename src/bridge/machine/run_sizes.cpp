#include "bridge/machine/run_sizes.h"

#include <algorithm>

namespace smelt {
namespace {

// Lengths of sequences and batches come again; one that does not costs a few microseconds.
constexpr size_t kMostRecent = 32;

}  // namespace

int32_t SizesOfRuns::add(std::span<const Size> sizes) {
  std::vector<int32_t> places;
  places.reserve(sizes.size());
  for (const Size& size : sizes) places.push_back(code_.place_of(size));
  const auto [found, is_new] =
      known_.try_emplace(std::move(places), static_cast<int32_t>(places_.size()));
  if (is_new) places_.insert(places_.end(), found->first.begin(), found->first.end());
  return found->second;
}

size_t SizesOfRuns::add_argument(const Arg& arg, const c10::Type* type, MakeArgument make) {
  const auto found = std::ranges::find_if(
      arguments_, [&](const Argument& known) { return known.type == type && known.arg == arg; });
  const auto index = static_cast<size_t>(found - arguments_.begin());
  if (index == arguments_.size()) arguments_.push_back({arg, type, std::move(make)});
  return index;
}

void SizesOfRuns::finish() {
  if (program_.symbols.empty()) fixed_ = make({});
}

std::shared_ptr<const RunSizes> SizesOfRuns::of(std::span<const int64_t> symbols) const {
  if (fixed_) return fixed_;
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      recent_, [&](const auto& known) { return std::ranges::equal(known->symbols, symbols); });
  if (found != recent_.end()) {
    std::rotate(recent_.begin(), found, found + 1);
    return recent_.front();
  }
  std::shared_ptr<const RunSizes> made = make(symbols);
  if (recent_.size() == kMostRecent) recent_.pop_back();
  recent_.insert(recent_.begin(), made);
  return made;
}

std::shared_ptr<const RunSizes> SizesOfRuns::make(std::span<const int64_t> symbols) const {
  auto sizes = std::make_shared<RunSizes>();
  sizes->symbols.assign(symbols.begin(), symbols.end());
  sizes->broken = program_.symbols.broken_by(symbols);
  if (sizes->broken) return sizes;
  std::vector<int64_t> values;
  code_.run(symbols, values);
  sizes->values.reserve(places_.size());
  for (const int32_t place : places_) sizes->values.push_back(values[place]);
  for (const Argument& argument : arguments_) sizes->arguments.push_back(argument.make(symbols));
  plan_arena(*sizes);
  return sizes;
}

void SizesOfRuns::plan_arena(RunSizes& sizes) const {
  const Arena& arena = program_.arena;
  if (!arena.offsets.empty()) {
    sizes.arena = {arena.offsets, arena.bytes};
  } else if (!arena.buffers.empty()) {
    std::vector<BufferLife> lives;
    lives.reserve(arena.buffers.size());
    for (const Arena::Buffer& buffer : arena.buffers)
      lives.push_back({buffer.bytes.evaluate(sizes.symbols), buffer.first, buffer.last});
    sizes.arena = plan_kept_memory(lives);
  }
}

}  // namespace smelt
