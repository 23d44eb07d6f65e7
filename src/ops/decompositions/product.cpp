// Products of small matrices as sums over rows of products, which a kernel computes with what comes
// before and after. A library's call costs a microsecond or more whatever the sizes: a kernel of
// smelt's costs a tenth of that, or nothing where the sum joins one that is there anyway.
//
// Measured with PyTorch 2.13 (MKL, AVX-512, microseconds for act(x @ w + bias), called and
// generated, w row-major): 8x16x16 2.0, 1.7; 8x32x32 2.1, 2.0; 16x32x32 2.4, 2.3;
// 32x32x32 2.7, 3.2; 1x64x64 2.0, 1.7; 1x256x256 6.6, 4.0; 1x512x512 10.8, 9.1. A vector times a
// matrix uses each element once, so that the library has nothing to gain by blocking.
#include "ops/decompositions/families.h"
#include "ops/rules/decompose.h"

namespace smelt {
namespace {

constexpr int64_t kSmallMatrices = 8 * 1024;  // multiplications
constexpr int64_t kSmallVector = 256 * 1024;

bool is_plain(const TensorType& type) {
  return is_plain_float(type) && !type.conj && !type.neg && has_elements(type);
}

// On CUDA a kernel reads a matrix that meets one vector as fast as memory gives it, if what is
// added up lies side by side; the library's kernels are made for many rows. (1x2048x2048 in bf16 on
// an H200: 7.4 us called.)
bool is_read_once(const TensorType& a, const TensorType& b) {
  if (!a.device.is_cuda() || a.rank() != 2) return false;
  return (a.sizes[0].is(1) && b.strides[0].is(1)) || (b.sizes[1].is(1) && a.strides[1].is(1));
}

// a [..., m, k] times b [..., k, n], of the same leading dimensions: is a call dearer than a
// kernel?
bool is_small(const DecomposeQuery& q, const TensorType& a, const TensorType& b) {
  if (is_read_once(a, b)) return true;
  const Size& rows = a.sizes[a.rank() - 2];
  const Size& columns = b.sizes[b.rank() - 1];
  const int64_t work = q.graph().symbols.hint(product(a.sizes) * columns);
  return work <= (rows.is(1) || columns.is(1) ? kSmallVector : kSmallMatrices);
}

bool is_small_product(const DecomposeQuery& q, const TensorType& a, const TensorType& b) {
  return is_plain(a) && is_plain(b) && is_small(q, a, b);
}

// Of f32 at least, [..., m, n]; the products [..., m, k, n] are no tensor, as they have one reader.
Term product_of(Term a, Term b) {
  const int rank = a.type().rank();
  return sum(unsqueeze(a, rank) * unsqueeze(b, rank - 2), {rank - 1}, false);
}

// beta * self + alpha * x; a beta of 0 takes no part, whatever self holds.
Term plus_self(DecomposeQuery& q, Term x) {
  const double beta = q.number(3), alpha = q.number(4);
  x = x * alpha;
  return beta == 0 ? x : wide_argument(q, 0) * beta + x;
}

// mm(self, mat2), bmm(self, mat2)
bool matrix_product(DecomposeQuery& q) {
  if (!is_small_product(q, q.type(0), q.type(1))) return false;
  give(q, 0, product_of(wide_argument(q, 0), wide_argument(q, 1)));
  return true;
}

// addmm, baddbmm (self, a, b, beta, alpha)
bool sum_and_product(DecomposeQuery& q) {
  if (!is_plain_float(q.type(0)) || !is_small_product(q, q.type(1), q.type(2))) return false;
  give(q, 0, plus_self(q, product_of(wide_argument(q, 1), wide_argument(q, 2))));
  return true;
}

// [m, k] times [k]
bool fits_vector(const DecomposeQuery& q, const TensorType& matrix, const TensorType& vector) {
  return is_plain(matrix) && is_plain(vector) &&
         q.graph().symbols.hint(product(matrix.sizes)) <= kSmallVector;
}

// mv(self, vec), dot(self, other)
bool times_vector(DecomposeQuery& q) {
  if (!fits_vector(q, q.type(0), q.type(1))) return false;
  const Term products = wide_argument(q, 0) * wide_argument(q, 1);
  give(q, 0, sum(products, {q.type(0).rank() - 1}, false));
  return true;
}

// addmv(self, mat, vec, beta, alpha)
bool sum_and_times_vector(DecomposeQuery& q) {
  if (!is_plain_float(q.type(0)) || !fits_vector(q, q.type(1), q.type(2))) return false;
  const Term products = wide_argument(q, 1) * wide_argument(q, 2);
  give(q, 0, plus_self(q, sum(products, {1}, false)));
  return true;
}

const Meaning kMeanings[] = {
    {.name = "aten::addmm", .decompose = sum_and_product},
    {.name = "aten::addmv", .decompose = sum_and_times_vector},
    {.name = "aten::baddbmm", .decompose = sum_and_product},
    {.name = "aten::bmm", .decompose = matrix_product},
    {.name = "aten::dot", .decompose = times_vector},
    {.name = "aten::mm", .decompose = matrix_product},
    {.name = "aten::mv", .decompose = times_vector},
};

}  // namespace

std::span<const Meaning> product_decompositions() { return kMeanings; }

}  // namespace smelt
