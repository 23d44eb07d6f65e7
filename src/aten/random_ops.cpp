// The random numbers of smelt's kernels (ops/meanings/random.cpp) as ops of PyTorch's: what runs
// where no kernel can be made.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/where.h>
#include <c10/core/Scalar.h>
#include <torch/library.h>

#include <array>

namespace smelt {
namespace {

constexpr int64_t kWord = 0xffffffff;

at::Tensor high(const at::Tensor& product) { return product.bitwise_right_shift(32) & kWord; }

// One of the four words of a block, by tensors of i64. Products of two words wrap around to the
// very bits that they have.
at::Tensor word_of(int64_t seed, const at::Tensor& stream, const at::Tensor& word) {
  const at::Tensor block = word.bitwise_right_shift(2), zero = block * 0;
  std::array<at::Tensor, 4> c = {block & kWord, high(block), zero + stream, zero};
  int64_t first = seed & kWord, second = (seed >> 32) & kWord;
  for (int round = 0; round < 10; ++round) {
    const at::Tensor a = c[0] * int64_t{0xd2511f53}, b = c[2] * int64_t{0xcd9e8d57};
    c = {high(b) ^ c[1] ^ first, b & kWord, high(a) ^ c[3] ^ second, a & kWord};
    first = (first + 0x9e3779b9) & kWord;
    second = (second + 0xbb67ae85) & kWord;
  }
  const at::Tensor odd = (word & 1).to(at::kBool), later = (word & 2).to(at::kBool);
  return at::where(later, at::where(odd, c[3], c[2]), at::where(odd, c[1], c[0]));
}

struct Places {
  at::Tensor stream, word;  // of the elements as they lie in memory
};

Places places(int64_t place, at::IntArrayRef size, int64_t vector, int64_t threads,
              c10::Device device) {
  const at::Tensor element =
      at::arange(c10::multiply_integers(size), at::TensorOptions().dtype(at::kLong).device(device));
  const auto divided = [](const at::Tensor& some, int64_t by) { return some.div(by, "floor"); };
  const int64_t words = vector == 2 ? 4 : vector;
  return {divided(element, vector).remainder(threads),
          divided(element, vector * threads) * words + element.remainder(vector) + 4 * place};
}

at::Tensor random_bits(const at::Scalar& seed, const at::Scalar& place, at::IntArrayRef size,
                       at::IntArrayRef stride, int64_t vector, int64_t threads,
                       c10::Device device) {
  const Places at = places(place.toLong(), size, vector, threads, device);
  return word_of(seed.toLong(), at.stream, at.word).as_strided(size, stride);
}

at::Tensor random_uniform(const at::Scalar& seed, const at::Scalar& place, at::IntArrayRef size,
                          at::IntArrayRef stride, int64_t vector, int64_t threads,
                          c10::Device device) {
  const at::Tensor bits = random_bits(seed, place, size, stride, vector, threads, device);
  return bits.to(at::kFloat) * 0x1p-32 + 0x1p-33;
}

at::Tensor random_normal(const at::Scalar& seed, const at::Scalar& place, at::IntArrayRef size,
                         at::IntArrayRef stride, int64_t vector, int64_t threads,
                         c10::Device device) {
  const Places at = places(place.toLong(), size, vector, threads, device);
  const auto unit = [&](const at::Tensor& word) {
    return (word_of(seed.toLong(), at.stream, word).to(at::kDouble) + 0.5) * 0x1p-32;
  };
  const at::Tensor radius = (unit(at.word & ~int64_t{1}).log() * -2).sqrt();
  const at::Tensor angle = unit(at.word | 1) * 6.283185307179586;
  const at::Tensor odd = (at.word & 1).to(at::kBool);
  return (radius * at::where(odd, angle.cos(), angle.sin()))
      .to(at::kFloat)
      .as_strided(size, stride);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(smelt, m) {
  constexpr const char* kArguments =
      "(Scalar seed, Scalar place, int[] size, int[] stride, int vector, int threads, Device "
      "device) -> Tensor";
  for (const char* name : {"random_bits", "random_uniform", "random_normal"})
    m.def((std::string(name) + kArguments).c_str());
  for (const auto key :
       {c10::DispatchKey::CompositeExplicitAutograd, c10::DispatchKey::BackendSelect}) {
    m.impl("random_bits", torch::dispatch(key, random_bits));
    m.impl("random_uniform", torch::dispatch(key, random_uniform));
    m.impl("random_normal", torch::dispatch(key, random_normal));
  }
}

}  // namespace smelt
