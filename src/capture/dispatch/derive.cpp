// How a size is derived.
//
// Let s0, s1, ... be the symbols. The rule is run at the hints and at further assignments, chosen
// so that distinct sizes of the arguments get distinct values at every one of them. A result size
// then is the vector of its values, and the candidates (constants, the arguments' own sizes,
// strides and integers, products of two of them, a*x+b over one of them) are tried in that order:
// the first that reproduces the whole vector is taken. With four points a wrong candidate must
// agree at all four by accident; the points are far apart and coprime, so that does not happen for
// the polynomial shapes that ops have. Anything else, and every rule that fails away from the
// hints, is specialised: right, but valid for the hinted sizes only.
#include "capture/dispatch/derive.h"

#include <array>

#include "diagnostics/log.h"

namespace smelt {
namespace {

constexpr size_t kPoints = 4;
using Samples = std::array<int64_t, kPoints>;

std::array<std::vector<int64_t>, kPoints> choose_points(const SymbolTable& symbols) {
  std::array<std::vector<int64_t>, kPoints> points;
  points[0] = symbols.hints();
  for (size_t i = 0; i < points[0].size(); ++i) {
    const int64_t hint = points[0][i], spread = static_cast<int64_t>(i) * 6;
    points[1].push_back(2 * hint + 3 + spread);
    points[2].push_back(3 * hint + 8 + 2 * spread);
    points[3].push_back(5 * hint + 1 + 3 * spread);
  }
  return points;
}

class Candidates {
 public:
  Candidates(const Call& call, const std::array<std::vector<int64_t>, kPoints>& points)
      : points_(points) {
    for (const TensorType& type : call.types) {
      for (const Size& size : type.sizes) add(size);
      for (const Size& stride : type.strides) add(stride);
      add(type.offset);
    }
    for (const Arg& arg : call.args) each_size(arg, [&](const Size& size) { add(size); });
  }

  std::optional<Size> fit(const Samples& samples) const {
    if (samples == Samples{samples[0], samples[0], samples[0], samples[0]}) return Size(samples[0]);
    for (const auto& [size, values] : known_)
      if (values == samples) return size;
    for (const auto& [left, a] : known_)
      for (const auto& [right, b] : known_)
        if (times(a, b) == samples) return left * right;
    for (const auto& [size, values] : known_)
      if (auto line = fit_line(size, values, samples)) return line;
    return std::nullopt;
  }

 private:
  static Samples times(const Samples& a, const Samples& b) {
    Samples out;
    for (size_t i = 0; i < kPoints; ++i) out[i] = a[i] * b[i];
    return out;
  }
  static std::optional<Size> fit_line(const Size& size, const Samples& x, const Samples& y) {
    if (x[1] == x[0] || (y[1] - y[0]) % (x[1] - x[0]) != 0) return std::nullopt;
    const int64_t slope = (y[1] - y[0]) / (x[1] - x[0]), start = y[0] - slope * x[0];
    for (size_t i = 0; i < kPoints; ++i)
      if (slope * x[i] + start != y[i]) return std::nullopt;
    return Size(slope) * size + Size(start);
  }
  void add(const Size& size) {
    Samples values;
    for (size_t i = 0; i < kPoints; ++i) values[i] = size.evaluate(points_[i]);
    for (const auto& entry : known_)
      if (entry.second == values) return;
    if (known_.size() < 64) known_.emplace_back(size, values);
  }

  const std::array<std::vector<int64_t>, kPoints>& points_;
  std::vector<std::pair<Size, Samples>> known_;
};

using PointResults = std::array<std::vector<Result>, kPoints>;

// The sizes of the types at the same place in each of the runs, as one.
std::optional<TensorType> merge_types(std::array<const TensorType*, kPoints> types,
                                      const Candidates& candidates) {
  TensorType merged = *types[0];
  const auto fit = [&](auto&& read) -> std::optional<Size> {
    Samples samples;
    for (size_t i = 0; i < kPoints; ++i) samples[i] = read(*types[i]).known();
    return candidates.fit(samples);
  };
  for (const TensorType* type : types)
    if (type->rank() != merged.rank() || type->dtype != merged.dtype) return std::nullopt;
  for (int d = 0; d < merged.rank(); ++d) {
    auto size = fit([&](const TensorType& type) { return type.sizes[d]; });
    auto stride = fit([&](const TensorType& type) { return type.strides[d]; });
    if (!size || !stride) return std::nullopt;
    merged.sizes[d] = *size;
    merged.strides[d] = *stride;
  }
  auto offset = fit([&](const TensorType& type) { return type.offset; });
  if (!offset) return std::nullopt;
  merged.offset = *offset;
  return merged;
}

std::optional<std::vector<Result>> merge(const PointResults& runs, const Candidates& candidates) {
  std::vector<Result> merged = runs[0];
  for (size_t r = 0; r < merged.size(); ++r) {
    for (const auto& run : runs)
      if (run.size() != merged.size() || run[r].list.size() != merged[r].list.size() ||
          run[r].tensor.has_value() != merged[r].tensor.has_value())
        return std::nullopt;
    if (merged[r].kind == Result::Kind::literal) return std::nullopt;
    std::array<const TensorType*, kPoints> types;
    if (merged[r].tensor) {
      for (size_t i = 0; i < kPoints; ++i) types[i] = &*runs[i][r].tensor;
      merged[r].tensor = merge_types(types, candidates);
      if (!merged[r].tensor) return std::nullopt;
    }
    for (size_t k = 0; k < merged[r].list.size(); ++k) {
      for (size_t i = 0; i < kPoints; ++i) types[i] = &runs[i][r].list[k];
      auto type = merge_types(types, candidates);
      if (!type) return std::nullopt;
      merged[r].list[k] = std::move(*type);
    }
  }
  return merged;
}

}  // namespace

void specialise_call(const Call& call, SymbolTable& symbols) {
  const auto pin = [&](const Size& size) { symbols.specialise(size); };
  for (const TensorType& type : call.types) {
    for (const Size& size : type.sizes) pin(size);
    for (const Size& stride : type.strides) pin(stride);
    pin(type.offset);
  }
  for (const Arg& arg : call.args) each_size(arg, pin);
  if (log_enabled(Log::shapes)) log(Log::shapes, call.op.name.str() + ": sizes specialised");
}

std::vector<Result> derive_results(const Call& call, SymbolTable& symbols,
                                   const ConcreteRule& rule) {
  const auto points = choose_points(symbols);
  PointResults runs;
  runs[0] = rule(points[0]);  // an error here is the user's
  try {
    for (size_t i = 1; i < kPoints; ++i) runs[i] = rule(points[i]);
  } catch (const std::exception&) {
    specialise_call(call, symbols);
    return runs[0];
  }
  if (auto merged = merge(runs, Candidates(call, points))) return std::move(*merged);
  specialise_call(call, symbols);
  return runs[0];
}

}  // namespace smelt
