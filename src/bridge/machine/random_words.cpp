#include "bridge/machine/random_words.h"

#include <algorithm>
#include <mutex>

namespace smelt {
namespace {

constexpr uint64_t kWords = 4;  // of a block: generators count words

}  // namespace

RandomPlace take_random_words(at::Generator generator, int64_t count) {
  const std::lock_guard lock(generator.mutex());
  try {
    const uint64_t offset = generator.get_offset();
    const auto seed = static_cast<int64_t>(generator.current_seed());
    generator.set_offset(offset + kWords * static_cast<uint64_t>(count));
    return {seed, static_cast<int64_t>(offset / kWords)};
  } catch (const c10::Error& error) {
    throw KernelFailed(std::string("the state of a generator can't be read: ") +
                       error.what_without_backtrace());
  }
}

PlacesOfGenerators::PlacesOfGenerators(const LinkedProgram& program) {
  for (const LinkedStep& step : program.steps()) {
    if (step.kind != LinkedStep::Kind::draw) continue;
    const at::Generator generator = step.generator.toGenerator();
    const auto is_this = [&](const auto& known) { return known.first == generator; };
    if (std::ranges::any_of(places_, is_this)) continue;
    places_.emplace_back(generator, 0);
    const std::lock_guard lock(places_.back().first.mutex());
    places_.back().second = generator.get_offset();
  }
}

void PlacesOfGenerators::restore() {
  for (auto& [generator, place] : places_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_offset(place);
  }
}

void check_drawing_blocks(const Device& device, int64_t blocks) {
  for (const Backend* backend : all_backends())
    if (backend->serves(device) && backend->drawing_blocks(device) == blocks) return;
  throw Error(
      "a program that draws random numbers was compiled for a GPU with another number of "
      "multiprocessors than " +
      device.str() + " has; compile it here");
}

}  // namespace smelt
