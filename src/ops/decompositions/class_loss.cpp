// nll_loss over rows or images: the target names a class for each, or says by `ignore_index` that
// it does not count. Classes stand in dimension 1, of a single row in dimension 0.
#include "ops/decompositions/families.h"
#include "ops/rules/decompose.h"

namespace smelt {
namespace {

constexpr int64_t kNoReduction = 0, kMean = 1, kSum = 2;

struct ClassLoss {
  int dim = 0;  // of the classes
  int64_t reduction = 0;
  Arg ignored;  // the class that does not count
  bool weighted = false;
};

// The arguments from the input on are (self, target, weight, reduction, ignore_index).
std::optional<ClassLoss> read_loss(const DecomposeQuery& q, size_t self) {
  const TensorType &input = q.type(self), &target = q.type(self + 1);
  if (!is_plain_float(input) || !has_elements(input) || target.dtype != DType::i64)
    return std::nullopt;
  if (input.rank() < 1 || target.rank() != input.rank() - 1) return std::nullopt;
  const std::optional<int64_t> reduction = q.size_at(self + 3).as_known();
  if (!reduction || *reduction < kNoReduction || *reduction > kSum) return std::nullopt;
  return ClassLoss{.dim = input.rank() == 1 ? 0 : 1,
                   .reduction = *reduction,
                   .ignored = q.arg(self + 4),
                   .weighted = !q.is_none(self + 2)};
}

Term scalar(DecomposeQuery& q, DType dtype) {
  return write(q, "aten::zeros", {ArgList{}, dtype, None{}, q.type(0).device, false});
}

// Returns (loss, total_weight).
bool nll_loss(DecomposeQuery& q) {
  const std::optional<ClassLoss> loss = read_loss(q, 0);
  if (!loss) return false;
  const DType dtype = accumulate_of(q.type(0).dtype);
  const Term target = unsqueeze(argument(q, 1), loss->dim);
  const Term ignored = equal_to(target, loss->ignored);
  const Term place = fill_where(target, ignored, 0);
  const Term picked =
      cast(write(q, "aten::gather", {argument(q, 0).ref(), loss->dim, place.ref(), false}), dtype);
  Term each = -picked;
  Term weight;
  if (loss->weighted) {
    weight = write(q, "aten::index.Tensor", {argument(q, 2).ref(), ArgList{place.ref()}});
    weight = fill_where(cast(weight, dtype), ignored, 0.0);
    each = each * weight;
  }
  each = fill_where(each, ignored, 0.0);
  // ATen gives the weight of a single row also where nothing is reduced.
  const bool is_reduced = loss->reduction != kNoReduction || q.type(0).rank() == 1;
  const Dims all = dims_from(0, q.type(0).rank());
  const Term counted = loss->weighted ? weight : write(q, "aten::logical_not", {ignored.ref()});
  const Term total = is_reduced ? cast(sum(counted, all, false), dtype) : scalar(q, dtype);
  give(q, 1, total);
  if (loss->reduction == kNoReduction) {
    give_viewed(q, 0, each);
    return true;
  }
  const Term whole = sum(each, all, false);
  give(q, 0, loss->reduction == kMean ? whole / total : whole);
  return true;
}

// (grad_output, self, target, weight, reduction, ignore_index, total_weight)
bool nll_loss_backward(DecomposeQuery& q) {
  const std::optional<ClassLoss> loss = read_loss(q, 1);
  if (!loss) return false;
  const int rank = q.type(1).rank();
  const Term target = unsqueeze(argument(q, 2), loss->dim);
  const Term place = fill_where(target, equal_to(target, loss->ignored), -1);
  const Term classes = along_channels(
      write(q, "aten::arange",
            {q.type(1).sizes[loss->dim], DType::i64, None{}, q.type(1).device, false}),
      rank);
  const Term elsewhere = write(q, "aten::ne.Tensor", {classes.ref(), place.ref()});
  Term grad = wide_argument(q, 0);
  if (loss->reduction == kNoReduction) grad = unsqueeze(grad, loss->dim);
  if (loss->reduction == kMean) grad = grad / wide_argument(q, 6);
  grad = -grad;
  if (loss->weighted) grad = grad * along_channels(wide_argument(q, 3), rank);
  give(q, 0, fill_where(grad, elsewhere, 0.0));
  return true;
}

const Meaning kMeanings[] = {
    {.name = "aten::nll_loss2d_backward", .decompose = nll_loss_backward},
    {.name = "aten::nll_loss2d_forward", .decompose = nll_loss},
    {.name = "aten::nll_loss_backward", .decompose = nll_loss_backward},
    {.name = "aten::nll_loss_forward", .decompose = nll_loss},
};

}  // namespace

std::span<const Meaning> class_loss_decompositions() { return kMeanings; }

}  // namespace smelt
