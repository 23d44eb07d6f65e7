// Random numbers as PyTorch draws them: Philox 4x32-10 (loops/philox.h), whose words curand makes
// numbers of. Threads that take words of one block next to each other compute the block once.
#pragma once

SMELT_DEVICE uint4 philox(u64 key, u64 stream, u64 block) {
  unsigned low = static_cast<unsigned>(key), high = static_cast<unsigned>(key >> 32);
  uint4 words;
  words.x = static_cast<unsigned>(block);
  words.y = static_cast<unsigned>(block >> 32);
  words.z = static_cast<unsigned>(stream);
  words.w = static_cast<unsigned>(stream >> 32);
  SMELT_UNROLL for (int round = 0; round < 10; ++round) {
    const unsigned a = __umulhi(0xd2511f53u, words.x), b = __umulhi(0xcd9e8d57u, words.z);
    uint4 next;
    next.x = b ^ words.y ^ low;
    next.y = 0xcd9e8d57u * words.z;
    next.z = a ^ words.w ^ high;
    next.w = 0xd2511f53u * words.x;
    words = next;
    low += 0x9e3779b9u;
    high += 0xbb67ae85u;
  }
  return words;
}

SMELT_DEVICE i64 random_bits(i64 key, i64 stream, i64 place) {
  const u64 word = static_cast<u64>(place);
  const uint4 words = philox(static_cast<u64>(key), static_cast<u64>(stream), word >> 2);
  const unsigned first = word & 1 ? words.y : words.x, second = word & 1 ? words.w : words.z;
  return static_cast<i64>(word & 2 ? second : first);
}

// Box and Muller's, with curand's roundings.
SMELT_DEVICE f32 random_normal(i64 key, i64 stream, i64 place) {
  const u64 word = static_cast<u64>(place);
  const uint4 words = philox(static_cast<u64>(key), static_cast<u64>(stream), word >> 2);
  const f32 step = 0x1p-32f, turn = 2.3283064e-10f * 6.2831855f;
  const f32 u = fmaf(static_cast<f32>(word & 2 ? words.z : words.x), step, step / 2.0f);
  const f32 v = fmaf(static_cast<f32>(word & 2 ? words.w : words.y), turn, turn / 2.0f);
  f32 sine, cosine;
  __sincosf(v, &sine, &cosine);
  return sqrtf(-2.0f * logf(u)) * (word & 1 ? cosine : sine);
}
