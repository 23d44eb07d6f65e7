#include "cuda_graphs/number_words.h"

#include <gtest/gtest.h>

#include <bit>

namespace smelt::cuda_graphs {
namespace {

uint64_t pair(float low, float high) {
  return std::bit_cast<uint32_t>(low) | static_cast<uint64_t>(std::bit_cast<uint32_t>(high)) << 32;
}

// One kernel that is given a rate as f64, as f32 beside its negative, and a count.
struct Written {
  std::vector<Capture> captures;
  std::vector<std::vector<Number>> numbers;

  Written() {
    for (size_t k = 0; k < 3; ++k) {
      const double rate = std::get<double>(invented_number(0, k, Number(1.0)));
      const auto count = std::get<int64_t>(invented_number(1, k, Number(int64_t{1})));
      const auto narrow = static_cast<float>(rate);
      Capture capture;
      capture.nodes.push_back({"step",
                               {std::bit_cast<uint64_t>(rate), pair(3.0f, narrow),
                                pair(-narrow, 1.0f / narrow), static_cast<uint64_t>(count), 5},
                               0});
      captures.push_back(std::move(capture));
      numbers.push_back({Number(rate), Number(count)});
    }
  }
};

TEST(NumberWords, AreFoundInEveryForm) {
  const Written written;
  const NumberPlaces places = find_number_places(written.captures, written.numbers, {});
  ASSERT_TRUE(places.possible) << places.possible.reason();
  const std::vector<NumberPlace> expected = {{0, 0, 0, NumberForm::f64},
                                             {0, 3, 0, NumberForm::f32},
                                             {0, 4, 0, NumberForm::minus_f32},
                                             {0, 5, 0, NumberForm::inverse_f32},
                                             {0, 6, 1, NumberForm::i64}};
  EXPECT_EQ(places.all, expected);
}

TEST(NumberWords, OneThatNoKernelIsGivenIsRefused) {
  Written written;
  for (Capture& capture : written.captures) capture.nodes[0].words[3] = 9;
  EXPECT_FALSE(find_number_places(written.captures, written.numbers, {}).possible);
}

TEST(NumberWords, AddressesAreNone) {
  const Written written;
  const std::vector<Place> taken = {{0, 3, 0, 0}};
  EXPECT_FALSE(find_number_places(written.captures, written.numbers, taken).possible);
}

}  // namespace
}  // namespace smelt::cuda_graphs
