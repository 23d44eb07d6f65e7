// Vectors: distances between the rows of two matrices, their gradients, and cross products.
#include <algorithm>
#include <cmath>

#include "ops/decompositions/families.h"
#include "ops/rules/decompose.h"
#include "ops/rules/promotion.h"

namespace smelt {
namespace {

// Torch's kernels know single and double precision.
bool are_reals(const DecomposeQuery& q, std::initializer_list<size_t> arguments) {
  return std::ranges::all_of(arguments, [&](size_t i) {
    return takes(kReals, q.type(i).dtype) && q.type(i).dtype == q.result().dtype &&
           has_elements(q.type(i));
  });
}

// Rows of argument `a` minus rows of argument `b`: [.., rows of a, rows of b, elements].
Term differences(DecomposeQuery& q, size_t a, size_t b) {
  const int64_t rank = q.type(a).rank();
  return unsqueeze(argument(q, a), rank - 1) - unsqueeze(argument(q, b), rank - 2);
}

bool are_rows(const TensorType& a, const TensorType& b) {
  if (a.rank() < 2 || a.rank() != b.rank() || a.sizes.back() != b.sizes.back()) return false;
  return std::equal(a.sizes.begin(), a.sizes.end() - 2, b.sizes.begin());
}

// _cdist_forward(x1, x2, p, compute_mode). Where torch takes a matrix product for the squares, that
// is faster, and so are its kernels for other powers.
bool distances(DecomposeQuery& q) {
  if (!is_wanted(q, 0) || !are_reals(q, {0, 1}) || !are_rows(q.type(0), q.type(1))) return false;
  const double order = q.number(2);
  if (order != 0 && order != 1 && order != 2 && !(std::isinf(order) && order > 0)) return false;
  if (order == 2) {
    constexpr int64_t kChosenBySize = 0, kProduct = 1, kMostRows = 25;
    const int64_t mode = q.integer(3, kChosenBySize);
    const auto is_few = [&](size_t i) {
      const auto rows = q.type(i).sizes[q.type(i).sizes.size() - 2].as_known();
      return rows && *rows <= kMostRows;
    };
    if (mode == kProduct || (mode == kChosenBySize && !(is_few(0) && is_few(1)))) return false;
  }
  const Term apart = differences(q, 0, 1);
  const std::optional<Term> norm = norm_of(apart, order, {apart.type().rank() - 1}, false);
  if (norm) give(q, 0, *norm);
  return norm.has_value();
}

// _cdist_backward(grad, x1, x2, p, cdist): of x1
bool distances_gradient(DecomposeQuery& q) {
  if (!is_wanted(q, 0) || !are_reals(q, {0, 1, 2, 4}) || !are_rows(q.type(1), q.type(2)))
    return false;
  const double order = q.number(3);
  if (order != 1 && order != 2) return false;
  const int64_t last = q.type(0).rank();
  Term grad = argument(q, 0), apart = differences(q, 1, 2);
  if (order == 1) {
    apart = write(q, "aten::sign", {apart.ref()});
  } else {
    const Term distance = argument(q, 4);
    grad = fill_where(grad / distance, equal_to(distance, 0.0), 0.0);
  }
  give(q, 0, sum(apart * unsqueeze(grad, last), {last - 1}, false));
  return true;
}

// dist(self, other, p)
bool distance(DecomposeQuery& q) {
  if (!is_wanted(q, 0) || !are_reals(q, {0, 1})) return false;
  const Term apart = argument(q, 0) - argument(q, 1);
  const std::optional<Term> norm =
      norm_of(apart, q.number(2, 2.0), dims_from(0, apart.type().rank()), false);
  if (norm) give(q, 0, *norm);
  return norm.has_value();
}

// linalg_cross(self, other, dim): of i, the product of i + 1 and i + 2 minus that the other way
// round
bool cross_product(DecomposeQuery& q) {
  if (!is_wanted(q, 0) || !are_reals(q, {0, 1}) || q.type(0).sizes != q.type(1).sizes) return false;
  const auto turned = [&](size_t i, int64_t steps) {
    return write(q, "aten::roll", {q.arg(i), ArgList{Arg(-steps)}, ArgList{q.arg(2)}});
  };
  give(q, 0, turned(0, 1) * turned(1, 2) - turned(0, 2) * turned(1, 1));
  return true;
}

const Meaning kMeanings[] = {
    {.name = "aten::_cdist_backward", .decompose = distances_gradient},
    {.name = "aten::_cdist_forward", .decompose = distances},
    {.name = "aten::dist", .decompose = distance},
    {.name = "aten::linalg_cross", .decompose = cross_product},
};

}  // namespace

std::span<const Meaning> vector_decompositions() { return kMeanings; }

}  // namespace smelt
