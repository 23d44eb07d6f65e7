#include "cuda_graphs/number_words.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

namespace smelt::cuda_graphs {
namespace {

double as_real(const Number& number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number);
}

uint32_t half_of(const CapturedNode& node, size_t half) {
  return static_cast<uint32_t>(node.words[half / 2] >> (half % 2 * 32));
}

class NumberSearch {
 public:
  NumberSearch(std::span<const Capture> captures, std::span<const std::vector<Number>> numbers)
      : captures_(captures), numbers_(numbers) {}

  std::optional<NumberPlace> wide(size_t node, size_t word) const {
    return find(node, word * 2, {NumberForm::f64, NumberForm::i64},
                [&](size_t k) { return captures_[k].nodes[node].words[word]; });
  }
  std::optional<NumberPlace> narrow(size_t node, size_t half) const {
    return find(node, half, {NumberForm::f32, NumberForm::minus_f32, NumberForm::inverse_f32},
                [&](size_t k) -> uint64_t { return half_of(captures_[k].nodes[node], half); });
  }

 private:
  template <class Read>
  std::optional<NumberPlace> find(size_t node, size_t half, std::initializer_list<NumberForm> forms,
                                  const Read& read) const {
    for (size_t n = 0; n < numbers_[0].size(); ++n)
      for (const NumberForm form : forms) {
        bool follows = true;
        for (size_t k = 0; k < captures_.size() && follows; ++k)
          follows = read(k) == bits_of(form, numbers_[k][n]);
        if (follows)
          return NumberPlace{static_cast<int32_t>(node), static_cast<int32_t>(half),
                             static_cast<int32_t>(n), form};
      }
    return std::nullopt;
  }

  std::span<const Capture> captures_;
  std::span<const std::vector<Number>> numbers_;
};

}  // namespace

bool is_wide(NumberForm form) { return form == NumberForm::f64 || form == NumberForm::i64; }

uint64_t bits_of(NumberForm form, const Number& number) {
  const double real = as_real(number);
  const auto narrow = static_cast<float>(real);
  switch (form) {
    case NumberForm::f64: return std::bit_cast<uint64_t>(real);
    case NumberForm::i64: return static_cast<uint64_t>(static_cast<int64_t>(real));
    case NumberForm::f32: return std::bit_cast<uint32_t>(narrow);
    case NumberForm::minus_f32: return std::bit_cast<uint32_t>(-narrow);
    case NumberForm::inverse_f32: return std::bit_cast<uint32_t>(1.0f / narrow);
  }
  return 0;
}

Number invented_number(size_t index, size_t capture, const Number& like) {
  if (std::holds_alternative<int64_t>(like))
    return static_cast<int64_t>(100003 + 1009 * index + 7919 * capture);
  return 0.371 + 0.0131 * static_cast<double>(index) + 0.2177 * static_cast<double>(capture);
}

NumberPlaces find_number_places(std::span<const Capture> captures,
                                std::span<const std::vector<Number>> numbers,
                                std::span<const Place> taken) {
  NumberPlaces found;
  if (numbers.empty() || numbers[0].empty()) return found;
  const NumberSearch search(captures, numbers);
  std::set<std::pair<int32_t, int32_t>> addresses;
  for (const Place& place : taken) addresses.emplace(place.node, place.word);
  std::vector<bool> is_found(numbers[0].size());
  const auto keep = [&](const NumberPlace& place) {
    is_found[place.number] = true;
    found.all.push_back(place);
  };
  for (size_t n = 0; n < captures[0].nodes.size(); ++n) {
    const CapturedNode& node = captures[0].nodes[n];
    for (size_t w = 0; w < node.words.size(); ++w) {
      const bool is_fixed = std::ranges::all_of(captures, [&](const Capture& capture) {
        return capture.nodes[n].words[w] == node.words[w];
      });
      if (is_fixed || addresses.contains({static_cast<int32_t>(n), static_cast<int32_t>(w)}))
        continue;
      if (const auto place = search.wide(n, w)) {
        keep(*place);
        continue;
      }
      for (const size_t half : {2 * w, 2 * w + 1})
        if (const auto place = search.narrow(n, half)) keep(*place);
    }
  }
  for (size_t i = 0; i < is_found.size(); ++i)
    if (!is_found[i])
      found.possible =
          Decision::forbid("a number that changes is not found among what kernels are given");
  return found;
}

}  // namespace smelt::cuda_graphs
