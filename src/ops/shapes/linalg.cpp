// Solvers, factorizations and distances. LAPACK's results are column by column: contiguous with the
// last two dimensions exchanged.
#include <algorithm>

#include "ops/rules/elementwise.h"
#include "ops/rules/geometry.h"
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

TensorType by_columns(DType dtype, Device device, Sizes sizes) {
  std::swap(sizes[sizes.size() - 2], sizes[sizes.size() - 1]);
  return *transposed(fresh(dtype, device, std::move(sizes)), -2, -1);
}

TensorType by_columns(const TensorType& like) {
  return by_columns(like.dtype, like.device, like.sizes);
}

Decision check_matrices(const TensorType& type) {
  if (!type.device.is_cpu()) return Decision::forbid("not modelled on this device");
  if (type.rank() < 2) return Decision::forbid("not a matrix");
  if (!takes(kReals | kComplexes, type.dtype)) return Decision::forbid("no rule for this dtype");
  return Decision::allow();
}

Decision check_square(const ShapeQuery& q, const TensorType& type) {
  if (Decision fits = check_matrices(type); !fits) return fits;
  return equal(q.symbols(), type.sizes[type.rank() - 1], type.sizes[type.rank() - 2])
             ? Decision::allow()
             : Decision::forbid("not a square matrix");
}

std::span<const Size> batch_of(const TensorType& type) {
  return std::span(type.sizes).first(type.sizes.size() - 2);
}

// The sizes of `b` with the batch that it has in common with `a`; nothing if there is none.
std::optional<Sizes> batched(SymbolTable& symbols, const TensorType& b, const TensorType& a) {
  std::optional<Sizes> sizes = broadcast(symbols, batch_of(b), batch_of(a));
  if (sizes) sizes->insert(sizes->end(), b.sizes.end() - 2, b.sizes.end());
  return sizes;
}

// _linalg_check_errors(info, api_name, is_matrix): it raises, or does nothing.
Decision check_errors(ShapeQuery& q) {
  return q.tensor(0).dtype == DType::i32 ? Decision::allow() : Decision::forbid("not an info");
}

// Of a square matrix, one like it.
template <bool by_columns_if_empty>
Decision square_result(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (Decision fits = check_square(q, self); !fits) return fits;
  const bool is_returned_early = !by_columns_if_empty && is_empty(q.symbols(), self.sizes);
  q.push(is_returned_early ? fresh_like(self, self.sizes) : by_columns(self));
  return Decision::allow();
}

// cholesky_solve(self, input2, upper): input2 is the factor.
Decision cholesky_solve(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType b = q.tensor(0), a = q.tensor(1);
  if (Decision fits = check_matrices(b); !fits) return fits;
  if (Decision fits = check_square(q, a); !fits) return fits;
  const std::optional<Sizes> sizes = batched(s, b, a);
  if (!sizes || a.dtype != b.dtype || a.device != b.device ||
      !equal(s, a.sizes[a.rank() - 1], b.sizes[b.rank() - 2]))
    return Decision::forbid("the operands do not fit");
  q.push(by_columns(b.dtype, b.device, *sizes));
  return Decision::allow();
}

// linalg_solve_triangular(self, B, upper, left, unitriangular)
Decision solve_triangular(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType a = q.tensor(0), b = q.tensor(1);
  if (Decision fits = check_square(q, a); !fits) return fits;
  if (Decision fits = check_matrices(b); !fits) return fits;
  const std::optional<Sizes> sizes = batched(s, b, a);
  const int side = q.boolean(3) ? b.rank() - 2 : b.rank() - 1;
  if (!sizes || a.dtype != b.dtype || a.device != b.device ||
      !equal(s, a.sizes[a.rank() - 1], b.sizes[side]))
    return Decision::forbid("the operands do not fit");
  // A conjugate matrix that lies by columns is not copied: the whole equation is transposed.
  const bool is_broadcast = !equal(s, batch_of(a), std::span(*sizes).first(sizes->size() - 2));
  if (a.conj && is_broadcast) return Decision::forbid("a conjugate matrix that is broadcast");
  const bool is_transposed = a.conj && is_contiguous(s, *transposed(a, -2, -1));
  q.push(is_transposed ? fresh_like(b, *sizes) : by_columns(b.dtype, b.device, *sizes));
  return Decision::allow();
}

// geqrf(self): the factors in one matrix, and their coefficients.
Decision geqrf(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (Decision fits = check_matrices(self); !fits) return fits;
  const Size rows = self.sizes[self.rank() - 2], columns = self.sizes[self.rank() - 1];
  Sizes sizes(batch_of(self).begin(), batch_of(self).end());
  sizes.push_back(less(q.symbols(), rows, columns) ? rows : columns);
  q.push(by_columns(self));
  q.push(fresh_like(self, sizes));
  return Decision::allow();
}

// linalg_householder_product(input, tau)
Decision householder_product(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType input = q.tensor(0), tau = q.tensor(1);
  if (Decision fits = check_matrices(input); !fits) return fits;
  const Size rows = input.sizes[input.rank() - 2], columns = input.sizes[input.rank() - 1];
  const bool fits = tau.dtype == input.dtype && tau.device == input.device &&
                    tau.rank() == input.rank() - 1 && !less(s, rows, columns) &&
                    !less(s, columns, tau.sizes[tau.rank() - 1]) &&
                    equal(s, std::span(tau.sizes).first(tau.sizes.size() - 1), batch_of(input));
  if (!fits || is_empty(s, input.sizes)) return Decision::forbid("the operands do not fit");
  q.push(by_columns(input));
  return Decision::allow();
}

// linalg_eig(self): complex values and vectors; eigvals the values alone.
template <bool has_vectors>
Decision eigenvalues(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (Decision fits = check_square(q, self); !fits) return fits;
  const DType dtype = is_complex(self.dtype) ? self.dtype : *complex_of(self.dtype);
  Sizes sizes = self.sizes;
  sizes.pop_back();
  q.push(fresh(dtype, self.device, sizes));
  if (has_vectors) q.push(by_columns(dtype, self.device, self.sizes));
  return Decision::allow();
}

// linalg_pinv.atol_rtol_tensor(self, atol, rtol, hermitian): a product of what a factorization
// gave.
Decision pseudo_inverse(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (Decision fits = q.boolean(3) ? check_square(q, self) : check_matrices(self); !fits)
    return fits;
  for (size_t i : {1, 2}) {
    if (q.is_none(i)) continue;
    const TensorType limit = q.tensor(i);
    if (limit.rank() > 0 || is_complex(limit.dtype) || limit.device != self.device)
      return Decision::forbid("no rule for this tolerance");
  }
  Sizes sizes = self.sizes;
  std::swap(sizes[sizes.size() - 2], sizes[sizes.size() - 1]);
  q.push(fresh_like(self, sizes));
  return Decision::allow();
}

// addr(self, vec1, vec2, beta, alpha)
Decision outer_sum(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0), a = q.tensor(1), b = q.tensor(2);
  if (a.rank() != 1 || b.rank() != 1) return Decision::forbid("not vectors");
  const MaybeType column = viewed(s, a, {a.sizes[0], 1});
  const MaybeType whole = expanded(s, self, {a.sizes[0], b.sizes[0]});
  if (!column || !whole) return Decision::forbid("the operands do not fit");
  for (size_t i : {3, 4}) {
    const TensorType sum[] = {self, a, b}, scaled[] = {self, a, b, q.tensor(i)};
    const std::optional<DType> dtype = result_type(sum, q.default_float());
    const std::optional<DType> with_factor = result_type(scaled, q.default_float());
    if (!dtype || !with_factor || category_of(*with_factor) > category_of(*dtype))
      return Decision::forbid("a factor of a higher category");
    if (q.tensor(i).dtype == DType::b8 && *dtype != DType::b8)
      return Decision::forbid("a factor that is a truth value");
  }
  Iterated it{{*whole, *column, b}, {}};
  if (Decision made = iterate(q, {}, it); !made) return made;
  q.push(std::move(it.result));
  return Decision::allow();
}

// _cdist_forward(x1, x2, p, compute_mode)
Decision distances(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType a = q.tensor(0), b = q.tensor(1);
  if (a.rank() < 2 || b.rank() < 2 || a.dtype != b.dtype || a.device != b.device ||
      !takes(kReals, a.dtype) || !equal(s, a.sizes.back(), b.sizes.back()))
    return Decision::forbid("no rule for these operands");
  std::optional<Sizes> sizes = broadcast(s, batch_of(a), batch_of(b));
  if (!sizes || q.number(2) < 0) return Decision::forbid("the operands do not fit");
  sizes->push_back(a.sizes[a.rank() - 2]);
  sizes->push_back(b.sizes[b.rank() - 2]);
  q.push(fresh_like(a, *sizes));
  return Decision::allow();
}

// _cdist_backward(grad, x1, x2, p, cdist)
Decision distances_gradient(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType a = q.tensor(1), b = q.tensor(2);
  const std::optional<Sizes> sizes = a.rank() < 2 || b.rank() < 2 ? std::nullopt : batched(s, a, b);
  const bool one_dtype =
      q.tensor(0).dtype == a.dtype && b.dtype == a.dtype && q.tensor(4).dtype == a.dtype;
  if (!sizes || !one_dtype || !takes(kReals, a.dtype))
    return Decision::forbid("no rule for these operands");
  const bool is_zero = is_empty(s, *sizes) || is_empty(s, b.sizes);
  q.push(is_zero ? preserved(s, a) : fresh_like(a, *sizes));
  return Decision::allow();
}

// _pdist_forward(self, p): between each two rows.
Decision pair_distances(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (self.rank() != 2 || !takes(kReals, self.dtype) || q.number(1) < 0 ||
      !is_contiguous(q.symbols(), self))
    return Decision::forbid("no rule for this operand");
  const int64_t rows = q.symbols().specialise(self.sizes[0]);
  q.push(fresh_like(self, {rows <= 1 ? 0 : rows * (rows - 1) / 2}));
  return Decision::allow();
}

// _pdist_backward(grad, self, p, pdist)
Decision pair_distances_gradient(ShapeQuery& q) {
  const TensorType grad = q.tensor(0), self = q.tensor(1), distances = q.tensor(3);
  if (self.rank() != 2 || !takes(kReals, self.dtype) || !is_contiguous(q.symbols(), self))
    return Decision::forbid("no rule for this operand");
  const bool fits = distances.rank() == 1 && grad.dtype == self.dtype &&
                    distances.dtype == self.dtype &&
                    equal(q.symbols(), grad.sizes, distances.sizes);
  if (!fits) return Decision::forbid("the distances do not fit");
  q.push(fresh_like(self, self.sizes));
  return Decision::allow();
}

// dist(self, other, p)
Decision distance(ShapeQuery& q) {
  if (q.tensor(0).dtype == DType::b8 || q.tensor(1).dtype == DType::b8)
    return Decision::forbid("a difference of truth values");
  if (Decision made = binary<promotes(kDifferentiable)>(q); !made) return made;
  const TensorType difference = *q.results[0];
  q.results.clear();
  q.push(fresh(real_of(difference.dtype), difference.device, {}));
  return Decision::allow();
}

// block_diag(tensors)
Decision block_diagonal(ShapeQuery& q) {
  const std::vector<TensorType> blocks = q.tensors(0);
  const std::optional<DType> dtype = result_type(blocks, q.default_float());
  if (!dtype) return Decision::forbid("no common dtype");
  Size rows = 0, columns = 0;
  for (const TensorType& block : blocks) {
    if (block.rank() > 2 || block.device != blocks[0].device)
      return Decision::forbid("not a matrix");
    rows = rows + (block.rank() == 2 ? block.sizes[0] : Size(1));
    columns = columns + (block.rank() == 0 ? Size(1) : block.sizes.back());
  }
  q.push(fresh(*dtype, blocks[0].device, {rows, columns}));
  return Decision::allow();
}

// linalg_matrix_exp(self): a sum of powers. How many there are is a matter of the contents, and
// with them the strides of a result whose operand does not lie row by row.
Decision matrix_exponential(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0);
  const bool is_square =
      self.rank() >= 2 && equal(s, self.sizes[self.rank() - 1], self.sizes[self.rank() - 2]);
  if (!is_square || !takes(kDifferentiable, self.dtype) || !is_contiguous(s, self))
    return Decision::forbid("no rule for this matrix");
  q.push(fresh_like(self, self.sizes));
  return Decision::allow();
}

// ormqr(self, tau, other, left, transpose): other times what geqrf gave.
Decision householder_times(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0), tau = q.tensor(1), other = q.tensor(2);
  if (Decision fits = check_matrices(self); !fits) return fits;
  if (Decision fits = check_matrices(other); !fits) return fits;
  const int side = q.boolean(3) ? other.rank() - 2 : other.rank() - 1;
  const bool fits = self.rank() == other.rank() && tau.rank() == self.rank() - 1 &&
                    self.dtype == other.dtype && self.dtype == tau.dtype &&
                    equal(s, batch_of(self), batch_of(other)) &&
                    equal(s, std::span(tau.sizes).first(tau.sizes.size() - 1), batch_of(self)) &&
                    !less(s, other.sizes[side], tau.sizes.back()) &&
                    equal(s, other.sizes[side], self.sizes[self.rank() - 2]) &&
                    !less(s, self.sizes.back(), tau.sizes.back());
  if (!fits) return Decision::forbid("the operands do not fit");
  q.push(by_columns(other));
  return Decision::allow();
}

// _trilinear(i1, i2, i3, expand1, expand2, expand3, sumdim, unroll_dim): the product of three, each
// with the dimensions that it lacks added, summed over some.
Decision trilinear(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType first = q.tensor(0);
  const int rank = first.rank() + static_cast<int>(q.integers(3).size());
  std::vector<std::optional<Size>> whole(rank);
  for (size_t i : {0, 1, 2}) {
    const TensorType factor = q.tensor(i);
    const std::vector<int64_t> lacking = q.integers(i + 3);
    if (factor.rank() + static_cast<int>(lacking.size()) != rank || factor.dtype != first.dtype ||
        factor.device != first.device || !takes(kNumbers | kComplexes, factor.dtype))
      return Decision::forbid("the factors do not fit");
    for (int d = 0, own = 0; d < rank; ++d) {
      if (std::ranges::find(lacking, d) != lacking.end()) continue;
      if (own == factor.rank()) return Decision::forbid("no such dimension");
      const Size& size = factor.sizes[own++];
      if (whole[d] && !equal(s, *whole[d], size)) return Decision::forbid("the sizes differ");
      whole[d] = size;
    }
  }
  const std::vector<int64_t> summed = q.integers(6);
  if (q.integer(7) < 0 || q.integer(7) >= rank) return Decision::forbid("no such dimension");
  Sizes sizes;
  for (int d = 0; d < rank; ++d) {
    if (!whole[d]) return Decision::forbid("a dimension that no factor has");
    if (std::ranges::find(summed, d) == summed.end()) sizes.push_back(*whole[d]);
  }
  q.push(fresh_like(first, std::move(sizes)));
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::_cdist_backward", distances_gradient},
    {"aten::_cdist_forward", distances},
    {"aten::_linalg_check_errors", check_errors, {.may_fail = true}},
    {"aten::_linalg_eigvals", eigenvalues<false>, {.may_fail = true}},
    {"aten::_pdist_backward", pair_distances_gradient},
    {"aten::_pdist_forward", pair_distances},
    {"aten::_trilinear", trilinear},
    {"aten::addr", outer_sum},
    {"aten::block_diag", block_diagonal},
    {"aten::cholesky", square_result<false>, {.may_fail = true}},
    {"aten::cholesky_inverse", square_result<true>, {.may_fail = true}},
    {"aten::cholesky_solve", cholesky_solve, {.may_fail = true}},
    {"aten::dist", distance},
    {"aten::geqrf", geqrf},
    {"aten::linalg_eig", eigenvalues<true>, {.may_fail = true}},
    {"aten::linalg_householder_product", householder_product, {.may_fail = true}},
    {"aten::linalg_matrix_exp", matrix_exponential, {.may_fail = true}},
    {"aten::linalg_pinv.atol_rtol_tensor", pseudo_inverse, {.may_fail = true}},
    {"aten::linalg_solve_triangular", solve_triangular, {.may_fail = true}},
    {"aten::ormqr", householder_times},
};

}  // namespace

std::span<const OpRow> linalg_rows() { return kRows; }

}  // namespace smelt
