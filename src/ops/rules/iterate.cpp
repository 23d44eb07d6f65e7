// The strides of an elementwise result, as torch's TensorIterator chooses them.
//
// If all operands have the same sizes there is a fast way: all contiguous gives a contiguous
// result, all channels-last a channels-last one, and operands that are dense and of equal strides
// give these strides.
//
// Otherwise the result is dense, its dimensions in the order in which the operands lie in memory.
// The order is found by an insertion sort that starts from the last dimension as the fastest one.
// Two dimensions are compared by the strides of the first operand that can tell: a stride of 0 (a
// broadcast dimension) cannot, equal strides can only where the slower dimension is the smaller
// one. Where no operand can tell, the sort looks past the pair and goes on, which makes it differ
// from a stable sort.
//
// On the CPU an operand of another dtype than the common one is converted first, and the conversion
// keeps only dense strides: iterate() compares the strides of the converted operands there, those
// of the originals elsewhere.
//
// Rules for changes: ask about sizes only where the answer matters, since each answer may leave a
// guard, and keep the order of the questions that of torch, since the sort is not a total order.
#include "ops/rules/iterate.h"

#include <algorithm>
#include <numeric>

#include "ops/rules/layout.h"

namespace smelt {
namespace {

bool all_same_sizes(SymbolTable& s, std::span<const TensorType> operands) {
  return std::ranges::all_of(operands, [&](const TensorType& operand) {
    return equal(s, operands[0].sizes, operand.sizes);
  });
}

// The strides of the fast way, nothing where it is closed.
std::optional<Sizes> shared_strides(SymbolTable& s, std::span<const TensorType> operands) {
  if (!all_same_sizes(s, operands)) return std::nullopt;
  const auto all = [&](auto&& condition) {
    return std::ranges::all_of(operands, [&](const TensorType& t) { return condition(s, t); });
  };
  if (all(is_contiguous)) return contiguous_strides(operands[0].sizes);
  if (all(is_channels_last)) return format_strides(operands[0].sizes, kChannelsLast);
  if (!all(is_dense)) return std::nullopt;
  for (const TensorType& operand : operands) {
    if (!equal(s, operand.strides, operands[0].strides)) return std::nullopt;
  }
  return operands[0].strides;
}

// The strides of an operand over the dimensions of the result, 0 where it is broadcast.
Sizes broadcast_strides(SymbolTable& s, const TensorType& operand, const Sizes& sizes) {
  Sizes strides(sizes.size(), Size(0));
  const size_t lead = sizes.size() - operand.sizes.size();
  for (size_t i = 0; i < operand.sizes.size(); ++i) {
    const bool spread = equal(s, operand.sizes[i], 1) && !equal(s, sizes[lead + i], 1);
    if (!spread) strides[lead + i] = operand.strides[i];
  }
  return strides;
}

// 1: dimension a is slower than b, -1: faster, 0: no operand can tell.
int compare_dims(SymbolTable& s, std::span<const Sizes> strides, const Sizes& sizes, int a, int b) {
  for (const Sizes& operand : strides) {
    const Size &left = operand[a], &right = operand[b];
    if (equal(s, left, 0) || equal(s, right, 0)) continue;
    if (less(s, left, right)) return -1;
    if (less(s, right, left)) return 1;
    if (less(s, sizes[b], sizes[a])) return 1;
  }
  return 0;
}

}  // namespace

std::optional<Sizes> broadcast_all(SymbolTable& symbols, std::span<const TensorType> operands) {
  std::optional<Sizes> sizes = operands[0].sizes;
  for (size_t i = 1; i < operands.size() && sizes; ++i) {
    sizes = broadcast(symbols, *sizes, operands[i].sizes);
  }
  return sizes;
}

std::optional<Device> common_device(std::span<const TensorType> operands, bool cpu_scalar) {
  Device device = operands[0].device;
  for (const TensorType& operand : operands) {
    if (device.is_cpu()) device = operand.device;
  }
  int scalars = 0;
  for (const TensorType& operand : operands) {
    if (operand.device == device) continue;
    const bool scalar = operand.rank() == 0 && operand.device.is_cpu();
    if (!scalar || ++scalars > (cpu_scalar ? 1 : 0)) return std::nullopt;
  }
  return device;
}

Sizes iterated_strides(SymbolTable& symbols, std::span<const TensorType> operands,
                       const Sizes& sizes) {
  if (std::optional<Sizes> shared = shared_strides(symbols, operands)) return *shared;
  const int rank = static_cast<int>(sizes.size());
  std::vector<Sizes> strides;
  for (const TensorType& operand : operands) {
    strides.push_back(broadcast_strides(symbols, operand, sizes));
  }
  std::vector<int> order(rank);
  std::iota(order.rbegin(), order.rend(), 0);
  for (int i = 1; i < rank; ++i) {
    int at = i;
    for (int j = i - 1; j >= 0; --j) {
      const int comparison = compare_dims(symbols, strides, sizes, order[j], order[at]);
      if (comparison < 0) break;
      if (comparison == 0) continue;
      std::swap(order[j], order[at]);
      at = j;
    }
  }
  const bool reversed = std::ranges::is_sorted(order, std::ranges::greater());
  if (reversed) return contiguous_strides(sizes);
  Sizes result(rank);
  Size next = 1;
  for (int d : order) {
    result[d] = next;
    next = next * sizes[d];
  }
  return result;
}

Decision iterate(const ShapeQuery& q, const Iteration& rules, Iterated& it) {
  SymbolTable& symbols = q.symbols();
  std::vector<TensorType>& operands = it.operands;
  const std::optional<Device> device = common_device(operands, rules.cpu_scalar);
  if (!device) return Decision::forbid("the operands are on different devices");
  DType common = operands[0].dtype;
  const bool mixed =
      std::ranges::any_of(operands, [&](const TensorType& t) { return t.dtype != common; });
  const bool scalars =
      std::ranges::all_of(operands, [](const TensorType& t) { return t.rank() == 0; });
  if (mixed && !rules.promote) return Decision::forbid("the operands have different dtypes");
  if (rules.promote && (mixed || scalars)) {
    const std::optional<DType> promoted = result_type(operands, q.default_float());
    if (!promoted) return Decision::forbid("the operands' dtypes have no common one");
    common = *promoted;
  }
  if (rules.floats) common = floating_of(common, q.default_float());
  if (!takes(rules.takes, common)) {
    return Decision::forbid("no rule for this op on " + std::string(name_of(common)));
  }
  std::optional<Sizes> sizes = broadcast_all(symbols, operands);
  if (!sizes) return Decision::forbid("the operands' sizes do not broadcast");
  if (device->is_cpu()) {
    for (TensorType& operand : operands) {
      if (operand.dtype != common) operand = preserved(symbols, operand, common);
    }
  }
  Sizes strides = iterated_strides(symbols, operands, *sizes);
  it.result = fresh(common, *device, std::move(*sizes), std::move(strides));
  return Decision::allow();
}

}  // namespace smelt
