// Batch norm in its many spellings, over all dimensions but the channels' (the second).
#include <algorithm>

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
  size_t input = 0;  // weight and bias stand behind it
  int running_mean = 3, running_var = 4;
  int training = 5;  // -1: never, -2: always
  int momentum = 6, eps = 7;
  int new_running = -1;  // the result from which on the new running statistics stand
  int reserve = -1;      // a result only cuDNN uses
  size_t weight() const { return input + 1; }
  size_t bias() const { return input + 2; }
};

Term empty_vector(DecomposeQuery& q, const Spelling& spelling, DType dtype, const Size& size = 0) {
  return write(q, "aten::zeros",
               {ArgList{Arg(size)}, dtype, None{}, q.type(spelling.input).device, false});
}

// x normalized by running statistics, as one multiplication and one addition per element.
bool normalize_by_running(DecomposeQuery& q, const Spelling& spelling) {
  const std::optional<Channels> channels = channels_of(q.type(spelling.input));
  if (!channels || spelling.running_mean < 0 || q.is_none(spelling.running_mean) ||
      q.is_none(spelling.running_var)) {
    return false;
  }
  Term scale = rsqrt(wide_argument(q, spelling.running_var) + q.number(spelling.eps));
  if (!q.is_none(spelling.weight())) scale = scale * wide_argument(q, spelling.weight());
  Term shift = wide_argument(q, spelling.running_mean) * scale;
  shift = q.is_none(spelling.bias()) ? -shift : wide_argument(q, spelling.bias()) - shift;
  const int rank = channels->rank;
  give(
      q, 0,
      wide_argument(q, spelling.input) * along_channels(scale, rank) + along_channels(shift, rank));
  for (size_t i : {1, 2}) {
    if (is_wanted(q, i)) give(q, i, empty_vector(q, spelling, q.result(i).dtype));
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

// Of a batch, by channel.
struct Statistics {
  Term mean;
  Term squares;  // of the distances from the mean, added up
};

Statistics in_two_passes(Term x, const Channels& channels) {
  const Term mean = sum(x, channels.dims, false) / channels.count;
  const Term centered = x - along_channels(mean, channels.rank);
  return {mean, sum(square(centered), channels.dims, false)};
}

// On a GPU a pass over memory takes longer than sums in f64, whose difference is as exact as f32.
Statistics in_one_pass(Term x, const Channels& channels, DType dtype) {
  const Term wide = cast(x, DType::f64);
  const Term total = sum(wide, channels.dims, false), mean = total / channels.count;
  const Term squares = sum(square(wide), channels.dims, false) - mean * total;
  const Term positive = write(*x.q, "aten::clamp_min", {squares.ref(), Size(0)});
  return {cast(mean, dtype), cast(positive, dtype)};
}

bool normalize_by_batch(DecomposeQuery& q, const Spelling& spelling) {
  const TensorType& type = q.type(spelling.input);
  const std::optional<Channels> channels = channels_of(type);
  if (!channels) return false;
  const int rank = channels->rank;
  const Term x = wide_argument(q, spelling.input);
  const bool one_pass = type.device.is_cuda() && type.dtype != DType::f64;
  const auto [mean, squares] =
      one_pass ? in_one_pass(argument(q, spelling.input), *channels, x.type().dtype)
               : in_two_passes(x, *channels);
  const Term centered = x - along_channels(mean, rank);
  const Term rstd = rsqrt(squares / channels->count + q.number(spelling.eps));
  const Term scale =
      q.is_none(spelling.weight()) ? rstd : rstd * wide_argument(q, spelling.weight());
  Term y = centered * along_channels(scale, rank);
  if (!q.is_none(spelling.bias())) y = y + along_channels(wide_argument(q, spelling.bias()), rank);
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
  if (spelling.new_running >= 0 &&
      (!training || q.is_none(spelling.running_mean) || q.is_none(spelling.running_var)))
    return false;
  if (spelling.reserve >= 0 && is_wanted(q, spelling.reserve)) {
    const Term reserved = empty_vector(q, spelling, DType::u8, q.result(spelling.reserve).sizes[0]);
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

const OpName kCudnnBackward("aten::cudnn_batch_norm_backward");

// What cuDNN's gradient takes: is every such gradient in the graph one that is decomposed?
bool is_reserve_unread(const DecomposeQuery& q, size_t reserve) {
  const ValueId kept = q.node().results[reserve];
  const Graph& graph = q.graph();
  if (kept < 0) return true;
  if (std::ranges::find(graph.outputs, kept) != graph.outputs.end()) return false;
  return std::ranges::all_of(graph.nodes, [&](const Node& node) {
    bool reads = false;
    for (const Arg& arg : node.args) each_ref(arg, [&](Ref ref) { reads |= ref.id == kept; });
    return !reads ||
           (node.op == kCudnnBackward && graph.type(node.args[0].get<Ref>().id) == q.type(1));
  });
}

// The same behind the list of what is changed: ([3, 4], input, weight, ...). Copies of the running
// statistics are changed, which nobody else sees.
bool cudnn(DecomposeQuery& q) {
  const Spelling spelling{.input = 1,
                          .running_mean = 4,
                          .running_var = 5,
                          .training = 6,
                          .momentum = 7,
                          .eps = 8,
                          .new_running = 4,
                          .reserve = 3};
  return all_known(q.type(1).sizes) && q.arg(0).get<ArgList>().size() == 2 &&
         is_reserve_unread(q, 3) && batch_norm(q, spelling);
}

struct Gradient {
  size_t grad = 0, input = 1, weight = 2, mean = 5;
  Term rstd;
  bool training = true;
};

bool give_gradients(DecomposeQuery& q, const Channels& channels, const Gradient& of) {
  const int rank = channels.rank;
  const Term grad = wide_argument(q, of.grad);
  const Term centered =
      wide_argument(q, of.input) - along_channels(wide_argument(q, of.mean), rank);
  const Term total = sum(grad, channels.dims, false);
  const Term product = sum(grad * centered, channels.dims, false);
  if (is_wanted(q, 0)) {
    const Term scale = q.is_none(of.weight) ? of.rstd : of.rstd * wide_argument(q, of.weight);
    Term change = grad;
    if (of.training) {
      const Term projection = product * square(of.rstd) / channels.count;
      change = grad - along_channels(total / channels.count, rank) -
               centered * along_channels(projection, rank);
    }
    give(q, 0, change * along_channels(scale, rank));
  }
  if (is_wanted(q, 1)) give(q, 1, product * of.rstd);
  give(q, 2, total);
  return true;
}

// (grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps,
// output_mask), perhaps with something only cuDNN uses at the end
bool batch_norm_backward(DecomposeQuery& q) {
  const bool training = q.boolean(7);
  const std::optional<Channels> channels = channels_of(q.type(1));
  const size_t mean_at = training ? 5 : 3, deviation_at = training ? 6 : 4;
  if (!channels || q.is_none(mean_at) || q.is_none(deviation_at)) return false;
  Term rstd = wide_argument(q, deviation_at);
  if (!training) rstd = rsqrt(rstd + q.number(8));
  return give_gradients(q, *channels, {.mean = mean_at, .rstd = rstd, .training = training});
}

// (input, grad_output, weight, running_mean, running_var, save_mean, save_invstd, eps, reserve)
bool cudnn_backward(DecomposeQuery& q) {
  const std::optional<Channels> channels = channels_of(q.type(0));
  if (!channels || !all_known(q.type(0).sizes) || q.is_none(5) || q.is_none(6)) return false;
  return give_gradients(q, *channels, {.grad = 1, .input = 0, .rstd = wide_argument(q, 6)});
}

const Meaning kMeanings[] = {
    {.name = "aten::_batch_norm_no_update", .decompose = no_update},
    {.name = "aten::_batch_norm_with_update_functional", .decompose = update_functional},
    {.name = "aten::_native_batch_norm_legit", .decompose = plain},
    {.name = "aten::_native_batch_norm_legit.no_stats", .decompose = no_stats},
    {.name = "aten::_native_batch_norm_legit_functional", .decompose = functional},
    {.name = "aten::_native_batch_norm_legit_no_training", .decompose = inference},
    {.name = "aten::batch_norm_backward", .decompose = batch_norm_backward},
    {.name = "aten::cudnn_batch_norm!", .decompose = cudnn},
    {.name = "aten::cudnn_batch_norm_backward", .decompose = cudnn_backward},
    {.name = "aten::native_batch_norm", .decompose = plain},
    {.name = "aten::native_batch_norm_backward", .decompose = batch_norm_backward},
};

}  // namespace

std::span<const Meaning> batch_norm_decompositions() { return kMeanings; }

}  // namespace smelt
