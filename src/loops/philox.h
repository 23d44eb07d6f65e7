// The random bits that PyTorch draws on GPUs: Philox 4x32-10 (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3"). A key has 2^64 streams of 2^64 blocks of four words; any word is
// computed by itself.
#pragma once

#include <array>
#include <cstdint>

namespace smelt::loops {

constexpr std::array<uint32_t, 4> philox(uint64_t key, uint64_t stream, uint64_t block) {
  std::array<uint32_t, 4> words = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                   static_cast<uint32_t>(stream),
                                   static_cast<uint32_t>(stream >> 32)};
  auto low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xd2511f53} * words[0], b = uint64_t{0xcd9e8d57} * words[2];
    words = {static_cast<uint32_t>(b >> 32) ^ words[1] ^ low, static_cast<uint32_t>(b),
             static_cast<uint32_t>(a >> 32) ^ words[3] ^ high, static_cast<uint32_t>(a)};
    low += 0x9e3779b9;
    high += 0xbb67ae85;
  }
  return words;
}

// Word number `word` of a stream, four to a block.
constexpr uint32_t philox_word(uint64_t key, uint64_t stream, uint64_t word) {
  return philox(key, stream, word / 4)[word % 4];
}

}  // namespace smelt::loops
