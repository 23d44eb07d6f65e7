// Products of matrices and vectors: fresh contiguous results.
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

// The factors have one dtype and device; other devices than the CPU multiply no integers.
Decision check_factors(std::initializer_list<const TensorType*> factors) {
  const TensorType& first = **factors.begin();
  const Kinds kinds = first.device.is_cpu() ? kNumbers | kComplexes : kDifferentiable;
  for (const TensorType* factor : factors) {
    if (factor->dtype != first.dtype || factor->device != first.device) {
      return Decision::forbid("the factors differ in dtype or device");
    }
  }
  if (!takes(kinds, first.dtype)) return Decision::forbid("no rule for this dtype");
  return Decision::allow();
}

// beta and alpha (and value) must be numbers of the result's category.
bool fits(const ShapeQuery& q, size_t number, DType dtype) {
  const DType given = q.tensor(number).dtype;
  if (is_complex(given)) return is_complex(dtype);
  return !is_floating(given) || category_of(dtype) >= Category::floating;
}

Decision push_product(ShapeQuery& q, const TensorType& like, Sizes sizes) {
  q.push(fresh_like(like, std::move(sizes)));
  return Decision::allow();
}

bool multiplies(const ShapeQuery& q, const TensorType& a, const TensorType& b) {
  return a.rank() == 2 && b.rank() == 2 && equal(q.symbols(), a.sizes[1], b.sizes[0]);
}

Decision mm(ShapeQuery& q) {
  const TensorType a = q.tensor(0), b = q.tensor(1);
  if (!multiplies(q, a, b)) return Decision::forbid("the matrices do not fit");
  if (Decision fit = check_factors({&a, &b}); !fit) return fit;
  return push_product(q, a, {a.sizes[0], b.sizes[1]});
}

// addmm(self, mat1, mat2, beta, alpha)
Decision addmm(ShapeQuery& q) {
  const TensorType self = q.tensor(0), a = q.tensor(1), b = q.tensor(2);
  if (!multiplies(q, a, b)) return Decision::forbid("the matrices do not fit");
  if (Decision fit = check_factors({&a, &b, &self}); !fit) return fit;
  if (!fits(q, 3, a.dtype) || !fits(q, 4, a.dtype))
    return Decision::forbid("a factor of a higher category");
  const Sizes sizes = {a.sizes[0], b.sizes[1]};
  if (!expandable(q.symbols(), self.sizes, sizes))
    return Decision::forbid("self does not broadcast");
  return push_product(q, a, sizes);
}

// addmm, then relu or gelu.
Decision addmm_activation(ShapeQuery& q) {
  if (!takes(kFloats, q.tensor(1).dtype)) return Decision::forbid("no rule for this dtype");
  return addmm(q);
}

bool multiplies_batches(const ShapeQuery& q, const TensorType& a, const TensorType& b) {
  return a.rank() == 3 && b.rank() == 3 && equal(q.symbols(), a.sizes[0], b.sizes[0]) &&
         equal(q.symbols(), a.sizes[2], b.sizes[1]);
}

Decision bmm(ShapeQuery& q) {
  const TensorType a = q.tensor(0), b = q.tensor(1);
  if (!multiplies_batches(q, a, b)) return Decision::forbid("the batches do not fit");
  if (Decision fit = check_factors({&a, &b}); !fit) return fit;
  return push_product(q, a, {a.sizes[0], a.sizes[1], b.sizes[2]});
}

template <bool summed>
Decision add_batches(ShapeQuery& q) {
  const TensorType self = q.tensor(0), a = q.tensor(1), b = q.tensor(2);
  if (!multiplies_batches(q, a, b)) return Decision::forbid("the batches do not fit");
  if (Decision fit = check_factors({&a, &b, &self}); !fit) return fit;
  if (!fits(q, 3, a.dtype) || !fits(q, 4, a.dtype))
    return Decision::forbid("a factor of a higher category");
  Sizes sizes = {a.sizes[1], b.sizes[2]};
  if (!summed) sizes.insert(sizes.begin(), a.sizes[0]);
  if (!expandable(q.symbols(), self.sizes, sizes))
    return Decision::forbid("self does not broadcast");
  return push_product(q, a, sizes);
}

Decision mv(ShapeQuery& q) {
  const TensorType a = q.tensor(0), b = q.tensor(1);
  const bool multiplies =
      a.rank() == 2 && b.rank() == 1 && equal(q.symbols(), a.sizes[1], b.sizes[0]);
  if (!multiplies) return Decision::forbid("matrix and vector do not fit");
  if (Decision fit = check_factors({&a, &b}); !fit) return fit;
  return push_product(q, a, {a.sizes[0]});
}

Decision addmv(ShapeQuery& q) {
  const TensorType self = q.tensor(0), a = q.tensor(1), b = q.tensor(2);
  const bool multiplies =
      a.rank() == 2 && b.rank() == 1 && equal(q.symbols(), a.sizes[1], b.sizes[0]);
  if (!multiplies || self.rank() > 1) return Decision::forbid("matrix and vectors do not fit");
  if (Decision fit = check_factors({&a, &b, &self}); !fit) return fit;
  if (!fits(q, 3, a.dtype) || !fits(q, 4, a.dtype))
    return Decision::forbid("a factor of a higher category");
  const Sizes sizes = {a.sizes[0]};
  if (!expandable(q.symbols(), self.sizes, sizes))
    return Decision::forbid("self does not broadcast");
  return push_product(q, a, sizes);
}

// Of two conjugate vectors, the conjugate of what the vectors behind them give, lazily; vdot
// conjugates the first one itself.
template <bool conjugates_first>
Decision dot(ShapeQuery& q) {
  const TensorType a = q.tensor(0), b = q.tensor(1);
  const bool multiplies =
      a.rank() == 1 && b.rank() == 1 && equal(q.symbols(), a.sizes[0], b.sizes[0]);
  if (!multiplies) return Decision::forbid("the vectors do not fit");
  if (a.neg || b.neg) return Decision::forbid("a lazily negated vector");
  if (Decision fit = check_factors({&a, &b}); !fit) return fit;
  TensorType result = fresh_like(a, {});
  result.conj = b.conj && a.conj != conjugates_first;
  q.push(std::move(result));
  return Decision::allow();
}

// linear(input, weight, bias): one op where autograd is off altogether (inference mode).
Decision linear(ShapeQuery& q) {
  const TensorType input = q.tensor(0), weight = q.tensor(1);
  const bool multiplies = input.rank() >= 2 && weight.rank() == 2 &&
                          equal(q.symbols(), input.sizes.back(), weight.sizes[1]);
  if (!multiplies) return Decision::forbid("input and weight do not fit");
  if (Decision fit = check_factors({&input, &weight}); !fit) return fit;
  if (!q.is_none(2)) {
    const TensorType bias = q.tensor(2);
    if (Decision fit = check_factors({&input, &bias}); !fit) return fit;
    if (bias.rank() != 1 || !equal(q.symbols(), bias.sizes[0], weight.sizes[0]))
      return Decision::forbid("the bias does not fit");
  }
  Sizes sizes = input.sizes;
  sizes.back() = weight.sizes[0];
  return push_product(q, input, sizes);
}

// _grouped_mm(self, mat2, offs, bias, out_dtype): rows of one matrix, or matrices of a batch, each
// times a matrix of their group. A row of the result takes whole pieces of 16 bytes.
Decision grouped_product(ShapeQuery& q) {
  constexpr int64_t kPiece = 16;
  const TensorType a = q.tensor(0), b = q.tensor(1);
  if (a.rank() < 2 || a.rank() > 3 || b.rank() != 3 || (a.rank() == 2) != q.is_tensor(2))
    return Decision::forbid("no rule for groups of other dimensions");
  if (!q.is_none(3) || !q.is_none(4)) return Decision::forbid("no rule for a bias or a dtype");
  if (Decision fit = check_factors({&a, &b}); !fit) return fit;
  if (!takes(kFloats, a.dtype) || a.dtype == DType::f64 ||
      !equal(q.symbols(), a.sizes.back(), b.sizes[1]))
    return Decision::forbid("the matrices do not fit");
  const int64_t columns = q.symbols().specialise(b.sizes[2]);
  if (columns * bytes_of(a.dtype) % kPiece != 0)
    return Decision::forbid("rows that are no whole pieces");
  Sizes sizes = a.sizes;
  sizes.back() = columns;
  return push_product(q, a, sizes);
}

constexpr OpRow kRows[] = {
    {"aten::_addmm_activation", addmm_activation},
    {"aten::_grouped_mm", grouped_product, {.may_fail = true}},
    {"aten::addbmm", add_batches<true>},
    {"aten::addmm", addmm},
    {"aten::addmv", addmv},
    {"aten::baddbmm", add_batches<false>},
    {"aten::bmm", bmm},
    {"aten::dot", dot<false>, {.reduces_all = true}},
    {"aten::linear", linear},
    {"aten::mm", mm},
    {"aten::mv", mv},
    {"aten::vdot", dot<true>},
};

}  // namespace

std::span<const OpRow> matmul_rows() { return kRows; }

}  // namespace smelt
