// Dropouts and random tensors on a GPU as arithmetic on random words, which kernels compute of the
// state of the generator (ops/meanings/random.cpp). They are the very numbers that PyTorch's own
// kernels draw, of which a thread has a stream of its own: which one an element gets depends on the
// grid of those kernels, and that on the device (PassOptions::drawing_blocks).
//
//     %1, %2 = aten::native_dropout(%0, 0.1, true) random
//
// becomes
//
//     %seed, %place = smelt::draw(cuda:0, 1, 1056) random
//     %u = smelt::random_uniform(%seed, %place, ...)       in (0, 1]
//     %2 = aten::lt.Scalar(%u, 0.9)
//     %1 = %0 * %2 * (1 / 0.9)
//
// so that a dropout is computed with its neighbours, and its mask is kept only where somebody
// wants it.
//
// Only what PyTorch's kernels do alike for any memory is written so. How many neighbours a thread
// of a dropout takes depends on where the tensor begins: it has to be one that the program computes
// itself. Numbers of double precision, ranges of 2^28 and more, and probabilities in a tensor are
// drawn by PyTorch.
//
// For whoever changes this: draws keep their order. Where all that draws in a graph is written so,
// they come first, for they read nothing: what stands behind a draw does not wait for it then.

#include <algorithm>
#include <cmath>
#include <optional>

#include "graph/alias.h"
#include "graph/effects.h"
#include "graph/numbers.h"
#include "ops/rules/layout.h"
#include "passes/passes.h"
#include "passes/rewriting/node_writer.h"
#include "passes/rewriting/replacements.h"

namespace smelt {
namespace {

const OpName kDropout("aten::native_dropout");
const OpName kBernoulli("aten::bernoulli.p");
const OpName kUniform("aten::uniform");
const OpName kNormal("aten::normal_functional");
const OpName kRand("aten::rand"), kRandLike("aten::rand_like");
const OpName kRandn("aten::randn"), kRandnLike("aten::randn_like");
const OpName kRandint("aten::randint"), kRandintLow("aten::randint.low");
const OpName kRandom("aten::random.from");

constexpr int64_t kBlock = 256;  // threads of PyTorch's kernels
constexpr int64_t kAccess = 16;  // bytes that a thread of a dropout takes
constexpr int64_t kWords = 4;    // of a block of random bits
constexpr int64_t kFewValues = int64_t{1} << 28;
constexpr int64_t kMostElements = int64_t{1} << 30;

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

std::optional<double> number(const Arg& arg) {
  if (arg.is<double>()) return arg.get<double>();
  if (arg.is<Size>() && arg.get<Size>().is_known())
    return static_cast<double>(arg.get<Size>().known());
  return std::nullopt;
}

class Drawing {
 public:
  Drawing(Graph& graph, const PassOptions& options)
      : graph_(graph), options_(options), roots_(view_roots(graph)), writer_(graph) {
    is_input_.resize(graph.values.size());
    for (const Input& input : graph.inputs) is_input_[input.value] = true;
    for (const Constant& constant : graph.constants) is_input_[constant.value] = true;
  }

  bool run() {
    bool changed = false, all = true;
    std::vector<Node> nodes = std::move(graph_.nodes);
    for (Node& node : nodes) {
      replaced_.apply(node);
      if (node.traits.random && write(node)) {
        changed = true;
        continue;
      }
      all = all && (!node.traits.random || node.op == effects::kSaveRng);
      writer_.keep(std::move(node));
    }
    replaced_.apply(graph_.outputs);
    writer_.finish();
    if (changed && all) bring_forward();
    return changed;
  }

 private:
  // The state before the numbers at hand are drawn.
  struct Drawn {
    Arg seed, place;
    int64_t threads = 0;
  };

  std::optional<int64_t> elements(const TensorType& type) const {
    const auto count = type.numel().as_known();
    if (!count || *count < 1 || *count > kMostElements || !all_known(type.strides))
      return std::nullopt;
    SymbolTable symbols = graph_.symbols;
    return is_dense(symbols, type) ? count : std::nullopt;
  }

  // `each`: elements for which a thread draws once.
  Drawn draw(const TensorType& type, int64_t count) {
    const int64_t blocks = options_.drawing_blocks(type.device);
    const int64_t threads = std::min(blocks, (count + kBlock - 1) / kBlock) * kBlock;
    const int64_t turns = (count - 1) / (threads * kWords) + 1;
    Node drawing{numbers::kDraw, {type.device, Size(turns), Size(blocks)}, {}, {.random = true}};
    for (int i = 0; i < 2; ++i) {
      drawing.results.push_back(static_cast<ValueId>(graph_.values.size()));
      graph_.values.push_back({.type = numbers::type_of(DType::i64)});
    }
    const Drawn drawn{Ref{drawing.results[0]}, Ref{drawing.results[1]}, threads};
    writer_.keep(std::move(drawing));
    return drawn;
  }

  ValueId random(const char* op, const Drawn& drawn, const TensorType& like, int64_t vector) {
    ArgList sizes, strides;
    for (const Size& size : like.sizes) sizes.emplace_back(size);
    for (const Size& stride : like.strides) strides.emplace_back(stride);
    return writer_.call(op, {drawn.seed, drawn.place, sizes, strides, Size(vector),
                             Size(drawn.threads), like.device});
  }

  ValueId cast(ValueId value, DType dtype) {
    if (graph_.type(value).dtype == dtype) return value;
    return writer_.call("aten::_to_copy",
                        {Ref{value}, dtype, None{}, None{}, None{}, false, None{}});
  }
  ValueId times(ValueId value, const Arg& factor) {
    return writer_.call("aten::mul.Tensor", {Ref{value}, factor});
  }
  ValueId plus(ValueId value, double number) {
    return number == 0 ? value
                       : writer_.call("aten::add.Tensor", {Ref{value}, Arg(number), Size(1)});
  }

  // False: the node stays as it is.
  bool write(const Node& node) {
    const ValueId first = node.results.empty() ? -1 : node.results[0];
    if (first < 0) return false;
    const TensorType type = graph_.type(first);
    if (!options_.has_kernels || !options_.drawing_blocks || !options_.has_kernels(type.device) ||
        options_.drawing_blocks(type.device) < 1)
      return false;
    const auto count = elements(type);
    if (!count) return false;
    const NodeWriter::Mark mark = writer_.mark();
    if (node.op == kDropout ? dropout(node, *count) : tensor(node, type, *count)) return true;
    writer_.forget_since(mark);
    return false;
  }

  bool stand_in(ValueId value, ValueId made) {
    if (made < 0 || !(graph_.type(made) == graph_.type(value))) return false;
    replaced_.put(value, made);
    return true;
  }

  // Neighbours that a thread of PyTorch's kernel takes; 0: it is not certain.
  int64_t neighbours(ValueId value, int64_t count) const {
    const TensorType& type = graph_.type(value);
    if (static_cast<size_t>(value) < roots_.size() && is_input_[roots_[value]]) return 0;
    const auto offset = type.offset.as_known();
    if (!offset || !elements(type)) return 0;
    int64_t vector = kAccess / bytes_of(type.dtype);
    while (vector > 1 && (*offset % vector != 0 || count % vector != 0)) vector /= 2;
    return vector > 1 || type.strides == contiguous_strides(type.sizes) ? vector : 0;
  }

  bool dropout(const Node& node, int64_t count) {
    const ValueId from = node.args[0].get<Ref>().id;
    const auto probability = number(node.args[1]);
    const bool trains =
        node.args[2].is_none() || (node.args[2].is<bool>() && node.args[2].get<bool>());
    if (!probability || !(*probability >= 0 && *probability < 1) || !trains) return false;
    const TensorType type = graph_.type(from);
    const int64_t vector = neighbours(from, count);
    if (vector == 0 || node.results.size() != 2 || node.results[1] < 0) return false;
    const bool is_double = type.dtype == DType::f64;
    const double kept = is_double ? 1 - *probability : static_cast<float>(1 - *probability);
    const double scale = is_double ? 1 / kept : static_cast<float>(1 / kept);
    ValueId uniform = random("smelt::random_uniform", draw(type, count), type, vector);
    if (uniform >= 0 && is_double) uniform = cast(uniform, DType::f64);
    if (uniform < 0) return false;
    const ValueId mask = writer_.call("aten::lt.Scalar", {Ref{uniform}, Arg(kept)});
    ValueId result = is_half(type.dtype) ? cast(from, DType::f32) : from;
    if (mask < 0 || result < 0) return false;
    if ((result = times(result, Ref{mask})) < 0 || (result = times(result, Arg(scale))) < 0)
      return false;
    result = cast(result, type.dtype);
    if (result < 0 || !(graph_.type(result) == graph_.type(node.results[0])) ||
        !(graph_.type(mask) == graph_.type(node.results[1])))
      return false;
    return stand_in(node.results[0], result) && stand_in(node.results[1], mask);
  }

  // What fills a tensor by one of TensorIterator's kernels.
  bool tensor(const Node& node, const TensorType& type, int64_t count) {
    const auto uniform = [&] {
      return random("smelt::random_uniform", draw(type, count), type, 1);
    };
    const auto normal = [&] { return random("smelt::random_normal", draw(type, count), type, 1); };
    const auto has_default_generator = [&](size_t i) {
      return i >= node.args.size() || node.args[i].is_none();
    };
    const bool is_floating_type = type.dtype == DType::f32 || is_half(type.dtype);
    ValueId made = -1;
    if (node.op == kBernoulli) {
      const auto probability = number(node.args[1]);
      if (!probability || !has_default_generator(2) || type.dtype == DType::f64) return false;
      made = writer_.call("aten::lt.Scalar",
                          {Ref{uniform()}, Arg(double{static_cast<float>(*probability)})});
    } else if (node.op == kRand || node.op == kRandLike) {
      if (is_floating_type) made = between(uniform(), 0, 1, type.dtype);
    } else if (node.op == kUniform) {
      const auto from = number(node.args[1]), to = number(node.args[2]);
      const bool is_known = from && to && has_default_generator(3) &&
                            (type.dtype == DType::f32 || (*from == 0 && *to == 1));
      if (is_known && is_floating_type)
        made = between(uniform(), static_cast<float>(*from), static_cast<float>(*to), type.dtype);
    } else if (node.op == kRandn || node.op == kRandnLike) {
      if (is_floating_type) made = normal();
    } else if (node.op == kNormal) {
      const auto mean = number(node.args[1]), deviation = number(node.args[2]);
      if (!mean || !deviation || !has_default_generator(3) || !is_floating_type) return false;
      made = normal();
      const double factor = static_cast<float>(*deviation);
      if (made >= 0 && factor != 1) made = times(made, Arg(factor));
      if (made >= 0) made = plus(made, static_cast<float>(*mean));
    } else {
      made = integers(node, type, count);
    }
    return made >= 0 && stand_in(node.results[0], cast(made, type.dtype));
  }

  // The bounds turned around, as PyTorch does it: from (from, to] to [from, to).
  ValueId between(ValueId uniform, float from, float to, DType dtype) {
    ValueId value = uniform;
    if (value >= 0 && to - from != 1) value = times(value, Arg(double{to - from}));
    if (value >= 0) value = plus(value, from);
    if (value >= 0) value = cast(value, dtype);
    const ValueId end =
        value < 0 ? -1 : writer_.call("aten::eq.Scalar", {Ref{value}, Arg(double{to})});
    if (end < 0) return -1;
    return writer_.call("aten::masked_fill.Scalar", {Ref{value}, Ref{end}, Arg(double{from})});
  }

  ValueId integers(const Node& node, const TensorType& type, int64_t count) {
    const bool is_fill = node.op == kRandom, has_low = is_fill || node.op == kRandintLow;
    if (!is_fill && !has_low && node.op != kRandint) return -1;
    if (!is_integral(type.dtype) || (is_fill && !node.args[3].is_none())) return -1;
    const size_t first = is_fill ? 1 : 0;
    const auto low = has_low ? number(node.args[first]) : 0.0;
    const auto high = number(node.args[first + (has_low ? 1 : 0)]);
    if (!low || !high || !(*high > *low) || *high - *low >= kFewValues) return -1;
    const Size least(static_cast<int64_t>(*low)), values(static_cast<int64_t>(*high - *low));
    const ValueId bits = random("smelt::random_bits", draw(type, count), type, 1);
    const ValueId rest =
        bits < 0 ? -1 : writer_.call("aten::remainder.Scalar", {Ref{bits}, values});
    if (rest < 0 || least.is(0)) return rest;
    return writer_.call("aten::add.Tensor", {Ref{rest}, least, Size(1)});
  }

  void bring_forward() {
    std::ranges::stable_partition(graph_.nodes,
                                  [](const Node& node) { return node.op == numbers::kDraw; });
    graph_.keep_nodes(std::vector<bool>(graph_.nodes.size(), true));
  }

  Graph& graph_;
  const PassOptions& options_;
  const std::vector<ValueId> roots_;
  NodeWriter writer_;
  Replacements replaced_;
  std::vector<bool> is_input_;  // by value
};

}  // namespace

bool draw_in_kernels(Graph& graph, const PassOptions& options) {
  const auto draws = [](const Node& node) {
    return node.traits.random && node.op != effects::kSaveRng && node.op != numbers::kDraw;
  };
  const auto restores = [](const Node& node) { return node.op == effects::kRestoreRng; };
  if (!options.drawing_blocks || std::ranges::none_of(graph.nodes, draws) ||
      std::ranges::any_of(graph.nodes, restores))
    return false;
  Graph draft = graph;
  if (!Drawing(draft, options).run()) return false;
  graph = std::move(draft);
  return true;
}

}  // namespace smelt
