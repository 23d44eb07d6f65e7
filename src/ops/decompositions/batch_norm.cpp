// Batch norm in its many spellings, over all dimensions but the channels' (the second).
#include "ops/decompositions/families.h"
#include "ops/rules/decompose.h"

namespace smelt {
namespace {

struct Channels {
  int rank = 0;
  Dims dims;       // all but the channels'
  Size count = 1;  // elements of one channel
};

std::optional<Channels> channels_of(const TensorType& type) {
  if (type.rank() < 2 || !is_plain_float(type) || !has_elements(type)) return std::nullopt;
  Channels channels{.rank = type.rank(), .dims = dims_from(2, type.rank())};
  channels.dims.insert(channels.dims.begin(), 0);
  channels.count = *count_of(type, channels.dims);
  return channels;
}

// The places of the arguments in one spelling; -1 for one that it does not have.
struct Spelling {
  int running_mean = 3, running_var = 4;
  int training = 5;  // -1: never, -2: always
  int momentum = 6, eps = 7;
  int new_running = -1;  // the result from which on the new running statistics stand
  int reserve = -1;      // a result only cuDNN uses
};

Term empty_vector(DecomposeQuery& q, DType dtype) {
  return write(q, "aten::zeros", {ArgList{0}, dtype, None{}, q.type(0).device, false});
}

// x normalized by running statistics, as one multiplication and one addition per element.
bool normalize_by_running(DecomposeQuery& q, const Spelling& spelling) {
  const std::optional<Channels> channels = channels_of(q.type(0));
  if (!channels || spelling.running_mean < 0 || q.is_none(spelling.running_mean) ||
      q.is_none(spelling.running_var)) {
    return false;
  }
  Term scale = rsqrt(wide_argument(q, spelling.running_var) + q.number(spelling.eps));
  if (!q.is_none(1)) scale = scale * wide_argument(q, 1);
  Term shift = wide_argument(q, spelling.running_mean) * scale;
  shift = q.is_none(2) ? -shift : wide_argument(q, 2) - shift;
  const int rank = channels->rank;
  give(q, 0, wide_argument(q, 0) * along_channels(scale, rank) + along_channels(shift, rank));
  for (size_t i : {1, 2}) {
    if (is_wanted(q, i)) give(q, i, empty_vector(q, q.result(i).dtype));
  }
  return true;
}

// The old statistic moved towards that of the batch.
Term moved(DecomposeQuery& q, size_t running, Term batch, double momentum) {
  const double kept = batch.type().dtype == DType::f32
                          ? static_cast<double>(1 - static_cast<float>(momentum))
                          : 1 - momentum;
  return batch * momentum + wide_argument(q, running) * kept;
}

bool normalize_by_batch(DecomposeQuery& q, const Spelling& spelling) {
  const std::optional<Channels> channels = channels_of(q.type(0));
  if (!channels) return false;
  const int rank = channels->rank;
  const Term x = wide_argument(q, 0);
  const Term mean = sum(x, channels->dims, false) / channels->count;
  const Term centered = x - along_channels(mean, rank);
  const Term squares = sum(square(centered), channels->dims, false);
  const Term rstd = rsqrt(squares / channels->count + q.number(spelling.eps));
  const Term scale = q.is_none(1) ? rstd : rstd * wide_argument(q, 1);
  Term y = centered * along_channels(scale, rank);
  if (!q.is_none(2)) y = y + along_channels(wide_argument(q, 2), rank);
  give(q, 0, y);
  give(q, 1, mean);
  give(q, 2, rstd);
  if (spelling.new_running < 0) return true;
  const double momentum = q.number(spelling.momentum);
  const auto after = static_cast<size_t>(spelling.new_running);
  if (is_wanted(q, after)) give(q, after, moved(q, spelling.running_mean, mean, momentum));
  if (is_wanted(q, after + 1)) {
    const Term variance = squares / (channels->count - 1);
    give(q, after + 1, moved(q, spelling.running_var, variance, momentum));
  }
  return true;
}

bool batch_norm(DecomposeQuery& q, const Spelling& spelling) {
  const bool training =
      spelling.training == -2 || (spelling.training >= 0 && q.boolean(spelling.training));
  const bool has_running = spelling.running_mean >= 0 && !q.is_none(spelling.running_mean);
  // Forms that update running statistics in place, and half of them given, are left alone.
  if (training && has_running && spelling.new_running < 0) return false;
  if (spelling.new_running >= 0 && (!training || q.is_none(3) || q.is_none(4))) return false;
  if (spelling.reserve >= 0 && is_wanted(q, spelling.reserve)) {
    const Term reserved = empty_vector(q, DType::u8);
    give(q, spelling.reserve, reserved);
  }
  return training ? normalize_by_batch(q, spelling) : normalize_by_running(q, spelling);
}

// (input, weight, bias, running_mean, running_var, training, momentum, eps)
bool plain(DecomposeQuery& q) { return batch_norm(q, {}); }
bool functional(DecomposeQuery& q) { return batch_norm(q, {.new_running = 3}); }
// (input, weight, bias, training, momentum, eps)
bool no_stats(DecomposeQuery& q) {
  return batch_norm(
      q, {.running_mean = -1, .running_var = -1, .training = 3, .momentum = 4, .eps = 5});
}
// (input, weight, bias, running_mean, running_var, momentum, eps)
bool inference(DecomposeQuery& q) {
  return batch_norm(q, {.training = -1, .momentum = 5, .eps = 6});
}
bool no_update(DecomposeQuery& q) {
  return batch_norm(q, {.training = -1, .momentum = 5, .eps = 6, .reserve = 3});
}
bool update_functional(DecomposeQuery& q) {
  return batch_norm(q, {.training = -2, .momentum = 5, .eps = 6, .new_running = 4, .reserve = 3});
}

// (grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps,
// output_mask), perhaps with something only cuDNN uses at the end
bool batch_norm_backward(DecomposeQuery& q) {
  const bool training = q.boolean(7);
  const std::optional<Channels> channels = channels_of(q.type(1));
  const size_t mean_at = training ? 5 : 3, deviation_at = training ? 6 : 4;
  if (!channels || q.is_none(mean_at) || q.is_none(deviation_at)) return false;
  const int rank = channels->rank;
  const Term grad = wide_argument(q, 0);
  Term rstd = wide_argument(q, deviation_at);
  if (!training) rstd = rsqrt(rstd + q.number(8));
  const Term centered = wide_argument(q, 1) - along_channels(wide_argument(q, mean_at), rank);
  const Term total = sum(grad, channels->dims, false);
  const Term product = sum(grad * centered, channels->dims, false);
  if (is_wanted(q, 0)) {
    const Term scale = q.is_none(2) ? rstd : rstd * wide_argument(q, 2);
    Term change = grad;
    if (training) {
      const Term projection = product * square(rstd) / channels->count;
      change = grad - along_channels(total / channels->count, rank) -
               centered * along_channels(projection, rank);
    }
    give(q, 0, change * along_channels(scale, rank));
  }
  if (is_wanted(q, 1)) give(q, 1, product * rstd);
  give(q, 2, total);
  return true;
}

const Meaning kMeanings[] = {
    {.name = "aten::_batch_norm_no_update", .decompose = no_update},
    {.name = "aten::_batch_norm_with_update_functional", .decompose = update_functional},
    {.name = "aten::_native_batch_norm_legit", .decompose = plain},
    {.name = "aten::_native_batch_norm_legit.no_stats", .decompose = no_stats},
    {.name = "aten::_native_batch_norm_legit_functional", .decompose = functional},
    {.name = "aten::_native_batch_norm_legit_no_training", .decompose = inference},
    {.name = "aten::batch_norm_backward", .decompose = batch_norm_backward},
    {.name = "aten::native_batch_norm", .decompose = plain},
    {.name = "aten::native_batch_norm_backward", .decompose = batch_norm_backward},
};

}  // namespace

std::span<const Meaning> batch_norm_decompositions() { return kMeanings; }

}  // namespace smelt
