// What tells an address from another number.
//
// - Inputs are placed so that each moves by a distance of its own from capture to capture, by which
//   no block of PyTorch's allocator can move. A word that moves by the same distances belongs to
//   that input, whatever its offset: kernels are given ends and beginnings before the first element
//   as well.
// - Outputs lie where PyTorch's allocator puts them, next to what the program needs inside. They
//   are known by the range of their memory, from the step on that has made them; before, the same
//   memory may have been something else's.
// - Other words differ as well: memory of the program's own, which stays where it is in the last
//   capture, and bytes of structures that nobody has set.
// - A word that lies in the memory of inputs in every capture, and follows none of them, would be
//   an address that is computed in a way which is not understood: then there is no graph.
#include "cuda_graphs/address_words.h"

#include <algorithm>
#include <optional>

namespace smelt::cuda_graphs {
namespace {

// The values of one word in all captures.
using Values = std::vector<uint64_t>;

bool is_inside(const Memory& memory, uint64_t address) {
  return address >= memory.address && address - memory.address < memory.bytes;
}

Decision check_alike(std::span<const Capture> captures) {
  const Capture& first = captures[0];
  for (const Capture& other : captures.subspan(1)) {
    if (other.nodes.size() != first.nodes.size())
      return Decision::forbid("it starts another number of kernels each time");
    for (size_t i = 0; i < first.nodes.size(); ++i)
      if (other.nodes[i].what != first.nodes[i].what ||
          other.nodes[i].words.size() != first.nodes[i].words.size() ||
          other.nodes[i].step != first.nodes[i].step)
        return Decision::forbid("it starts other kernels each time: " + first.nodes[i].what +
                                ", then " + other.nodes[i].what);
  }
  return Decision::allow();
}

class Search {
 public:
  explicit Search(std::span<const Capture> captures) : captures_(captures) {}

  // The tensor that the word follows; nothing if none.
  std::optional<Place> follow(const Values& values, int32_t step) const {
    const size_t inputs = captures_[0].inputs.size();
    for (size_t i = 0; i < inputs; ++i)
      if (const auto offset = input_offset(values, i))
        return Place{.tensor = static_cast<int32_t>(i), .offset = *offset};
    for (size_t i = 0; i < captures_[0].outputs.size(); ++i)
      if (const auto offset = output_offset(values, i, step))
        return Place{.tensor = static_cast<int32_t>(inputs + i), .offset = *offset};
    return std::nullopt;
  }

  // In each capture it is an address in the memory of an input, or of an output that is there.
  bool is_doubtful(const Values& values, int32_t step) const {
    for (size_t k = 0; k < captures_.size(); ++k) {
      const auto holds = [&](const Memory& memory) {
        return memory.step <= step && is_inside(memory, values[k]);
      };
      if (!std::ranges::any_of(captures_[k].inputs, holds) &&
          !std::ranges::any_of(captures_[k].outputs, holds))
        return false;
    }
    return true;
  }

 private:
  std::optional<int64_t> input_offset(const Values& values, size_t input) const {
    const uint64_t offset = values[0] - captures_[0].inputs[input].address;
    for (size_t k = 1; k < captures_.size(); ++k)
      if (values[k] - captures_[k].inputs[input].address != offset) return std::nullopt;
    return static_cast<int64_t>(offset);
  }
  std::optional<int64_t> output_offset(const Values& values, size_t output, int32_t step) const {
    const uint64_t offset = values[0] - captures_[0].outputs[output].address;
    for (size_t k = 0; k < captures_.size(); ++k) {
      const Memory& memory = captures_[k].outputs[output];
      if (step < memory.step || !is_inside(memory, values[k]) ||
          values[k] - memory.address != offset)
        return std::nullopt;
    }
    return static_cast<int64_t>(offset);
  }

  std::span<const Capture> captures_;
};

}  // namespace

Places find_places(std::span<const Capture> captures) {
  Places found;
  found.possible = check_alike(captures);
  if (!found.possible) return found;
  const Search search(captures);
  std::vector<bool> is_written(captures[0].outputs.size());
  Values values(captures.size());
  for (size_t n = 0; n < captures[0].nodes.size(); ++n) {
    const CapturedNode& node = captures[0].nodes[n];
    for (size_t w = 0; w < node.words.size(); ++w) {
      for (size_t k = 0; k < captures.size(); ++k) values[k] = captures[k].nodes[n].words[w];
      if (std::ranges::all_of(values, [&](uint64_t value) { return value == values[0]; })) continue;
      std::optional<Place> place = search.follow(values, node.step);
      if (!place && search.is_doubtful(values, node.step)) {
        found.possible = Decision::forbid("a parameter of " + node.what +
                                          " depends on addresses in a way that is not known");
        return found;
      }
      if (!place) continue;
      place->node = static_cast<int32_t>(n);
      place->word = static_cast<int32_t>(w);
      if (const size_t inputs = captures[0].inputs.size();
          static_cast<size_t>(place->tensor) >= inputs)
        is_written[place->tensor - inputs] = true;
      found.all.push_back(*place);
    }
  }
  for (size_t i = 0; i < is_written.size(); ++i)
    if (!is_written[i] && captures[0].outputs[i].bytes > 0) {
      found.possible = Decision::forbid("no kernel writes result " + std::to_string(i));
      return found;
    }
  return found;
}

// Input i moves by 2 (count + i) + 1 slots from the first capture to the second, and by as many to
// the third: an odd number of halves of a block.
uint64_t slot_of(size_t input, size_t capture, size_t count) {
  static_assert(kBlock == 2 * kSlot);
  return kSlot * (2 * input + capture * (2 * (count + input) + 1));
}

}  // namespace smelt::cuda_graphs
