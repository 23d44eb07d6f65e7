#include <bit>
#include <cmath>

#include "loops/scalar.h"

namespace smelt::loops {

uint16_t f16_bits(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (std::isnan(value)) return sign | 0x7e00;
  float magnitude = std::fabs(value);
  // 65520 lies in the middle between the largest f16 and the next power of two: a tie, to infinity.
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  if (magnitude == 0) return sign;
  int exponent;
  std::frexp(magnitude, &exponent);
  // Of 11 significant bits; below 2^-14 the last place stays 2^-24.
  int last_place = std::max(exponent - 11, -24);
  auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -last_place)));
  // Subnormal numbers are their units; of the others the leading bit carries into the exponent.
  uint32_t biased = static_cast<uint32_t>(last_place + 24) << 10;
  return static_cast<uint16_t>(sign | (biased + units));
}

float from_f16_bits(uint16_t bits) {
  int exponent = bits >> 10 & 0x1f;
  auto fraction = static_cast<float>(bits & 0x3ff);
  float magnitude;
  if (exponent == 0x1f)
    magnitude = fraction == 0 ? INFINITY : NAN;
  else if (exponent == 0)
    magnitude = std::ldexp(fraction, -24);
  else
    magnitude = std::ldexp(fraction + 1024.0f, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

uint16_t bf16_bits(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  // Adds half a place, or just less where the kept part is even already.
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float from_bf16_bits(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace smelt::loops
