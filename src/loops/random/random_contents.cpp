#include "loops/random/random_contents.h"

#include <cmath>
#include <cstring>

#include "loops/interpret.h"
#include "loops/scalar.h"

namespace smelt::loops {
namespace {

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

double random_number(const Contents& contents, Random& random) {
  if (contents.wild && random.chance(10)) {
    double special[] = {NAN, INFINITY, -INFINITY, -0.0};
    return special[random.below(4)];
  }
  return static_cast<double>(random.between(-32, 32)) / 8;
}

int64_t random_integer(DType dtype, const Contents& contents, Random& random) {
  if (dtype == DType::b8) return random.below(2);
  if (contents.bound > 0)
    return contents.broken && random.chance(2) ? contents.bound : random.below(contents.bound);
  if (contents.wild) return random.between(INT32_MIN, INT32_MAX) * (INT32_MAX - 17);
  return random.between(dtype == DType::u8 ? 0 : -50, 50);
}

void put_element(std::byte* at, DType dtype, const Contents& contents, Random& random) {
  double number = is_floating(dtype) ? random_number(contents, random) : 0;
  int64_t integer = is_floating(dtype) ? 0 : random_integer(dtype, contents, random);
  switch (dtype) {
    case DType::f64: return put(at, number);
    case DType::f32: return put(at, static_cast<float>(number));
    case DType::f16: return put(at, f16_bits(static_cast<float>(number)));
    case DType::bf16: return put(at, bf16_bits(static_cast<float>(number)));
    case DType::i64: return put(at, integer);
    case DType::i32: return put(at, static_cast<int32_t>(integer));
    case DType::i16: return put(at, static_cast<int16_t>(integer));
    default: return put(at, static_cast<uint8_t>(integer));
  }
}

template <class T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

double number_at(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::f64: return get<double>(at);
    case DType::f32: return get<float>(at);
    case DType::f16: return from_f16_bits(get<uint16_t>(at));
    default: return from_bf16_bits(get<uint16_t>(at));
  }
}

// The rounding of the dtype, and of f32 for all that may have been computed in it.
double tolerance(DType dtype) { return dtype == DType::bf16 ? 3e-2 : 6e-3; }

bool is_close(double expected, double actual, DType dtype) {
  if (std::isnan(expected) || std::isnan(actual)) return std::isnan(expected) == std::isnan(actual);
  if (std::isinf(expected) || std::isinf(actual)) return expected == actual;
  return std::fabs(expected - actual) <= tolerance(dtype) * (1 + std::fabs(expected));
}

int64_t integer_at(const std::byte* at, DType dtype) {
  int64_t value = 0;
  std::memcpy(&value, at, bytes_of(dtype));
  return wrap_to(dtype, value);
}

}  // namespace

std::vector<std::byte> random_bytes(DType dtype, int64_t elements, const Contents& contents,
                                    Random& random) {
  int bytes = bytes_of(dtype);
  std::vector<std::byte> result(elements * bytes);
  for (int64_t i = 0; i < elements; ++i)
    put_element(result.data() + i * bytes, dtype, contents, random);
  return result;
}

bool interpret(RandomCase& random_case) {
  std::vector<void*> buffers;
  for (std::vector<std::byte>& bytes : random_case.buffers) buffers.push_back(bytes.data());
  return interpret(random_case.kernel, Call{buffers, random_case.sizes, random_case.params});
}

std::string difference(const Kernel& kernel, const std::vector<std::vector<std::byte>>& expected,
                       const std::vector<std::vector<std::byte>>& actual) {
  for (size_t b = 0; b < kernel.buffers.size(); ++b) {
    DType dtype = kernel.buffers[b].dtype;
    int bytes = bytes_of(dtype);
    if (expected[b].size() != actual[b].size()) return "b" + std::to_string(b) + ": another size";
    for (size_t i = 0; i < expected[b].size() / bytes; ++i) {
      const std::byte *left = expected[b].data() + i * bytes, *right = actual[b].data() + i * bytes;
      std::string at = "b" + std::to_string(b) + "[" + std::to_string(i) + "]: ";
      if (is_floating(dtype)) {
        double x = number_at(left, dtype), y = number_at(right, dtype);
        if (!is_close(x, y, dtype))
          return at + std::to_string(y) + " instead of " + std::to_string(x);
      } else {
        int64_t x = integer_at(left, dtype), y = integer_at(right, dtype);
        if (x != y) return at + std::to_string(y) + " instead of " + std::to_string(x);
      }
    }
  }
  return "";
}

}  // namespace smelt::loops
