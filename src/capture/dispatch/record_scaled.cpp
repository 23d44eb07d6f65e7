#include "capture/dispatch/record_scaled.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <bit>
#include <cmath>
#include <optional>
#include <string>

#include "aten/size_node.h"
#include "capture/dispatch/recorder.h"

namespace smelt {
namespace {

constexpr int64_t kMostDenominator = 4096;
constexpr int64_t kMostSize = 1 << 16;

struct Ratio {
  int64_t numerator, denominator;

  // Each product with a size has an exact floating-point number.
  bool is_exact() const { return std::has_single_bit(static_cast<uint64_t>(denominator)); }
  int64_t of(int64_t size) const { return size * numerator / denominator; }
};

// The ratio that the factor was computed of; nothing: it is none of small numbers.
std::optional<Ratio> ratio_of(double factor) {
  if (!(factor > 0) || factor > static_cast<double>(kMostSize)) return std::nullopt;
  for (int64_t denominator = 1; denominator <= kMostDenominator; ++denominator) {
    const double numerator = std::round(factor * static_cast<double>(denominator));
    if (numerator >= 1 && numerator / static_cast<double>(denominator) == factor)
      return Ratio{static_cast<int64_t>(numerator), denominator};
  }
  return std::nullopt;
}

// As PyTorch computes it.
int64_t scaled_now(int64_t size, double factor) {
  return static_cast<int64_t>(static_cast<double>(size) * factor);
}

// A size times a factor as an expression. PyTorch rounds the product: the expression is for sizes
// from the one at hand up and down to the first for which it would be another one.
std::optional<c10::SymInt> scaled(const c10::SymInt& size, double factor) {
  if (const std::optional<int64_t> known = size.maybe_as_int())
    return c10::SymInt(scaled_now(*known, factor));
  const std::optional<Ratio> ratio = ratio_of(factor);
  if (!ratio) return std::nullopt;
  const auto fits = [&](int64_t at) { return ratio->of(at) == scaled_now(at, factor); };
  const int64_t now = Recorder::current()->symbols().hint(to_size(size));
  if (!ratio->is_exact()) {
    if (now > kMostSize || !fits(now)) return std::nullopt;
    int64_t low = now, high = now;
    while (low > 1 && fits(low - 1)) --low;
    while (high < kMostSize && fits(high + 1)) ++high;
    if (!size.sym_ge(low).guard_bool(__FILE__, __LINE__) ||
        !size.sym_le(high).guard_bool(__FILE__, __LINE__))
      return std::nullopt;
  }
  return size * ratio->numerator / ratio->denominator;
}

std::optional<std::vector<c10::SymInt>> scaled_sizes(const at::Tensor& self,
                                                     const std::vector<double>& factors) {
  if (self.dim() != static_cast<int64_t>(factors.size()) + 2) return std::nullopt;
  std::vector<c10::SymInt> sizes;
  for (size_t i = 0; i < factors.size(); ++i) {
    const auto size = scaled(self.sym_size(static_cast<int64_t>(i) + 2), factors[i]);
    if (!size) return std::nullopt;
    sizes.push_back(*size);
  }
  return sizes;
}

}  // namespace

bool record_scaled(const OpInfo& op, std::vector<c10::IValue>* stack, size_t first) {
  const at::Tensor self = (*stack)[first].toTensor();
  const c10::IValue given = (*stack)[first + 1], factors = stack->back();
  const bool is_known = c10::asIntArrayRefSlowOpt(self.sym_sizes()).has_value();
  std::optional<std::vector<c10::SymInt>> sizes;
  std::vector<double> scales;
  if (given.isSymIntList() || (given.isIntList() && !is_known)) {
    if (!factors.isNone()) return false;
    sizes = given.toSymIntVector();
  } else if (given.isNone() && factors.isDoubleList() && !is_known) {
    scales = factors.toDoubleVector();
    sizes = scaled_sizes(self, scales);
  }
  if (!sizes) return false;
  const std::string name(op.facts.instead);
  const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
  stack->pop_back();
  (*stack)[first + 1] = c10::SymIntArrayRef(*sizes);
  for (size_t i = 0; i < sizes->size(); ++i)
    stack->push_back(scales.empty() ? c10::IValue() : c10::IValue(scales[i]));
  handle.callBoxed(stack);
  return true;
}

}  // namespace smelt
