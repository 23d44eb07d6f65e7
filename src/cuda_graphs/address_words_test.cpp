#include "cuda_graphs/address_words.h"

#include <gtest/gtest.h>

#include <set>

namespace smelt::cuda_graphs {
namespace {

constexpr uint64_t kWindow = 0x7f00'0000'0000, kPool = 0x7e00'0000'0000;

// Captures of a program of two inputs and one output: mm into memory of its own, then relu.
struct Written {
  std::vector<Capture> captures;

  explicit Written(size_t count = 3) {
    for (size_t k = 0; k < count; ++k) {
      Capture capture;
      for (size_t i = 0; i < 2; ++i)
        capture.inputs.push_back({.address = kWindow + slot_of(i, k, 2), .bytes = 4096});
      capture.outputs.push_back({.address = kPool + 0x1000 * (k + 1), .bytes = 1024, .step = 1});
      const uint64_t inside = kPool + 0x10'0000 + 0x200 * k;
      capture.nodes.push_back(
          {"mm", {a(capture), 64, b(capture) + 128, inside, 0xabc0 + k * 17}, 0});
      capture.nodes.push_back({"relu", {inside, out(capture) + 16, 7}, 1});
      captures.push_back(std::move(capture));
    }
  }
  static uint64_t a(const Capture& capture) { return capture.inputs[0].address; }
  static uint64_t b(const Capture& capture) { return capture.inputs[1].address; }
  static uint64_t out(const Capture& capture) { return capture.outputs[0].address; }
};

TEST(AddressWords, FollowInputsAndOutputs) {
  const Places places = find_places(Written().captures);
  ASSERT_TRUE(places.possible) << places.possible.reason();
  const std::vector<Place> expected = {{0, 0, 0, 0}, {0, 2, 1, 128}, {1, 1, 2, 16}};
  EXPECT_EQ(places.all, expected);
}

TEST(AddressWords, AreFoundInFrontOfAnInputAndBehindIt) {
  Written written;
  for (Capture& capture : written.captures)
    capture.nodes[1].words = {Written::a(capture) - 8, Written::b(capture) + 4096,
                              Written::out(capture)};
  const Places places = find_places(written.captures);
  ASSERT_TRUE(places.possible);
  ASSERT_EQ(places.all.size(), 5u);
  EXPECT_EQ(places.all[2], (Place{1, 0, 0, -8}));
  EXPECT_EQ(places.all[3], (Place{1, 1, 1, 4096}));
}

TEST(AddressWords, OfAnOutputCountFromTheStepThatMakesIt) {
  Written written;
  // The same memory before: something of the program's own.
  for (Capture& capture : written.captures) capture.nodes[0].words[3] = Written::out(capture);
  const Places places = find_places(written.captures);
  ASSERT_TRUE(places.possible);
  EXPECT_EQ(places.all.size(), 3u);
}

TEST(AddressWords, ThatMoveOtherwiseAreRefused) {
  Written written;
  for (size_t k = 0; k < 3; ++k)
    written.captures[k].nodes[1].words[2] = Written::a(written.captures[k]) + 8 * k;
  EXPECT_FALSE(find_places(written.captures).possible);
}

TEST(AddressWords, OtherKernelsAreRefused) {
  Written written;
  written.captures[2].nodes[1].what = "relu, unaligned";
  EXPECT_FALSE(find_places(written.captures).possible);
  Written shorter;
  shorter.captures[1].nodes.pop_back();
  EXPECT_FALSE(find_places(shorter.captures).possible);
}

TEST(AddressWords, AnOutputThatNobodyWritesIsRefused) {
  Written written;
  for (Capture& capture : written.captures) capture.nodes[1].words[1] = 5;
  EXPECT_FALSE(find_places(written.captures).possible);
}

TEST(AddressWords, InputsMoveByDistancesOfTheirOwn) {
  const size_t count = 100;
  std::set<uint64_t> second, third;
  for (size_t i = 0; i < count; ++i) {
    EXPECT_LT(slot_of(i, 0, count), slot_of(i, 1, count));
    EXPECT_TRUE(second.insert(slot_of(i, 1, count) - slot_of(i, 0, count)).second);
    EXPECT_TRUE(third.insert(slot_of(i, 2, count) - slot_of(i, 1, count)).second);
  }
}

// Of a vocabulary of 32000, say: an output of the size by which one of a hundred inputs moves.
TEST(AddressWords, BlocksOfTheAllocatorMoveLikeNoInput) {
  for (uint64_t blocks = 1; blocks < 40; ++blocks) {
    Written written;
    for (size_t k = 0; k < 3; ++k) {
      Capture& capture = written.captures[k];
      const uint64_t inside = kPool + 0x100'0000 + blocks * kBlock * k;
      capture.outputs[0].address = kPool + blocks * kBlock * k;
      capture.nodes[0].words[3] = inside;
      capture.nodes[1].words = {inside, Written::out(capture) + 16, 7};
    }
    const Places places = find_places(written.captures);
    ASSERT_TRUE(places.possible) << blocks << " blocks: " << places.possible.reason();
    const std::vector<Place> expected = {{0, 0, 0, 0}, {0, 2, 1, 128}, {1, 1, 2, 16}};
    EXPECT_EQ(places.all, expected) << blocks << " blocks";
  }
}

}  // namespace
}  // namespace smelt::cuda_graphs
