#include "aten/digest.h"

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdio>

#include "base/error.h"

namespace smelt {
namespace {

constexpr int64_t kLargest = 1 << 16;  // bytes

std::string hex(uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

std::string digest_of(const at::Tensor& tensor) {
  static std::atomic<uint64_t> unique{0};
  if (!tensor.is_cpu() || !tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg() ||
      static_cast<int64_t>(tensor.nbytes()) > kLargest)
    return "unique" + std::to_string(unique.fetch_add(1, std::memory_order_relaxed));
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  return hex(hash);
}

}  // namespace smelt
