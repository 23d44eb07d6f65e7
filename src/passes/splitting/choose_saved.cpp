// A cheapest cut. Each value that is there before the backward is two vertices with an edge between
// them, whose capacity is what saving it costs. An edge without limit leads from a value to what is
// computed of it. An edge leads from the source to each value: what it costs to compute it in the
// backward once more, without limit where that must not be. From what the backward reads an edge
// without limit leads to the sink. On the sink's side of the cut is what the backward has: saved
// where the cut goes between the two vertices, else computed again.
//
// Costs are bytes of memory traffic. To save a tensor counts its bytes for the memory it takes, for
// reading it in the backward, and for writing it if the forward's kernels would not have written
// it; a copy is read once more to make it, and is a tensor that would not be there. All that counts
// twice (kMemory): at once, a U-Net takes 13 % less memory and a small GPT-2 15 %, and no model of
// `./dev bench train` is slower by more than the noise. To compute an
// element costs half a byte for each cheap instruction; and twice the tensor's bytes if something
// reads it that is no kernel, since it has to be written, and its arguments read for this alone.
//
// Rules for whoever changes it: products, convolutions, reductions and whatever is called run once;
// a view is not saved, since it keeps alive what it shows.
#include "passes/splitting/choose_saved.h"

#include <algorithm>

#include "graph/effects.h"
#include "ops/meaning.h"
#include "passes/splitting/max_flow.h"

namespace smelt {
namespace {

constexpr int kSource = 0, kSink = 1;
// A tensor more: allocated, written by a kernel, saved and checked. About a microsecond.
constexpr int64_t kCopy = 8192;
// What is saved is there until the backward, and so counts twice.
constexpr int64_t kMemory = 2;

class Cut {
 public:
  explicit Cut(const SavingChoice& choice)
      : choice_(choice),
        joint_(choice.joint),
        is_cheap_(joint_.nodes.size()),
        in_kernel_(joint_.nodes.size()),
        is_written_(joint_.values.size()),
        is_read_by_call_(joint_.values.size()),
        stays_(joint_.values.size()),
        is_constant_(joint_.values.size()),
        flow_(2 + 2 * static_cast<int>(joint_.values.size())) {
    for (const Constant& constant : joint_.constants) is_constant_[constant.value] = true;
  }

  std::optional<std::vector<bool>> run() {
    for (size_t i = 0; i < joint_.nodes.size(); ++i) classify(i);
    find_readers();
    find_backward_only();
    for (size_t value = 0; value < joint_.values.size(); ++value)
      if (takes_part(static_cast<ValueId>(value))) add(static_cast<ValueId>(value));
    for (const Node& node : joint_.nodes) connect(node);
    for (const ValueId output : joint_.outputs)
      if (output >= 0 && takes_part(output) && stays_[output])
        flow_.add_edge(out(output), kSink, MaxFlow::kUnlimited);
    if (flow_.run(kSource, kSink) >= MaxFlow::kUnlimited) return std::nullopt;
    const std::vector<bool> in_backward = flow_.sink_side(kSink);
    std::vector<bool> saved(joint_.values.size());
    for (size_t value = 0; value < saved.size(); ++value) {
      const auto id = static_cast<ValueId>(value);
      saved[value] = takes_part(id) && !in_backward[in(id)] && in_backward[out(id)];
    }
    return saved;
  }

 private:
  static int in(ValueId value) { return 2 + 2 * value; }
  static int out(ValueId value) { return 3 + 2 * value; }

  bool takes_part(ValueId value) const {
    return choice_.is_needed[value] && !choice_.is_late[value] && !is_constant_[value];
  }
  NodeId maker(ValueId value) const { return joint_.values[value].node; }

  template <typename Visit>
  static void each_argument(const Node& node, const Visit& visit) {
    for (const Arg& arg : node.args)
      each_ref(arg, [&](Ref ref) {
        if (ref.id >= 0) visit(ref.id);
      });
  }

  void classify(size_t i) {
    const Node& node = joint_.nodes[i];
    if (!node.traits.is_pure() || node.traits.grad || effects::is_mutator(node.op)) return;
    if (node.traits.view) {
      is_cheap_[i] = in_kernel_[i] = true;
      return;
    }
    in_kernel_[i] = static_cast<bool>(can_lower(joint_, node));
    const Meaning* meaning = find_meaning(node.op);
    is_cheap_[i] = in_kernel_[i] && meaning->element &&
                   (meaning->pattern == Pattern::pointwise || meaning->pattern == Pattern::factory);
  }

  // What the forward writes to memory in any case, and what the backward's calls read.
  void find_readers() {
    std::vector<bool> seen_by_call(joint_.values.size());  // of the forward
    for (int32_t i = static_cast<int32_t>(joint_.nodes.size()); i-- > 0;) {
      const Node& node = joint_.nodes[i];
      const bool is_late = std::ranges::any_of(
          node.results, [&](ValueId value) { return value >= 0 && choice_.is_late[value]; });
      const bool is_view = node.traits.view && node.traits.is_pure();
      const auto any = [&](const std::vector<bool>& marked) {
        return std::ranges::any_of(node.results, [&](ValueId v) { return v >= 0 && marked[v]; });
      };
      const bool by_call = is_view ? any(is_read_by_call_) : is_late && !in_kernel_[i];
      const bool by_forward = is_view ? any(seen_by_call) : choice_.in_forward[i] && !in_kernel_[i];
      each_argument(node, [&](ValueId value) {
        if (by_call) is_read_by_call_[value] = true;
        if (by_forward) seen_by_call[value] = true;
      });
    }
    for (size_t value = 0; value < joint_.values.size(); ++value) {
      const NodeId node = maker(static_cast<ValueId>(value));
      is_written_[value] =
          node < 0 || (choice_.in_forward[node] && (!in_kernel_[node] || seen_by_call[value]));
    }
  }

  // What only the backward needs and must not run twice stays there, with all that is made of it.
  void find_backward_only() {
    for (size_t i = 0; i < joint_.nodes.size(); ++i) {
      if (choice_.in_forward[i]) continue;
      const Node& node = joint_.nodes[i];
      bool stays = !is_cheap_[i];
      each_argument(node, [&](ValueId value) { stays = stays || stays_[value]; });
      for (ValueId result : node.results)
        if (result >= 0) stays_[result] = stays;
    }
    for (const ValueId output : joint_.outputs)
      if (output >= 0 && maker(output) >= 0 && !choice_.in_forward[maker(output)])
        stays_[output] = true;
  }

  int64_t elements(ValueId value) const { return joint_.symbols.hint(joint_.type(value).numel()); }
  int64_t bytes(ValueId value) const {
    return elements(value) * bytes_of(joint_.type(value).dtype);
  }

  int64_t cost_of_saving(ValueId value) const {
    if (stays_[value] || choice_.saving[value] == Saving::never) return MaxFlow::kUnlimited;
    if (choice_.saving[value] == Saving::free) return 0;
    if (choice_.saving[value] == Saving::copy) return kCopy + kMemory * bytes(value) * 4;
    return kMemory * bytes(value) * (is_written_[value] ? 2 : 3);
  }

  int64_t cost_of_computing(ValueId value) const {
    const NodeId node = maker(value);
    if (node < 0) return MaxFlow::kUnlimited;
    if (!choice_.in_forward[node]) return 0;
    if (!is_cheap_[node]) return MaxFlow::kUnlimited;
    if (joint_.nodes[node].traits.view) return 0;
    const int cost = std::max(1, find_meaning(joint_.nodes[node].op)->cost);
    return 1 + elements(value) * cost / 2 + (is_read_by_call_[value] ? 2 * bytes(value) : 0);
  }

  void add(ValueId value) {
    flow_.add_edge(in(value), out(value), cost_of_saving(value));
    if (const int64_t cost = cost_of_computing(value)) flow_.add_edge(kSource, in(value), cost);
  }

  void connect(const Node& node) {
    for (const ValueId result : node.results) {
      if (result < 0 || !choice_.is_needed[result]) continue;
      const int to = choice_.is_late[result] ? kSink : in(result);
      each_argument(node, [&](ValueId value) {
        if (takes_part(value)) flow_.add_edge(out(value), to, MaxFlow::kUnlimited);
      });
    }
  }

  const SavingChoice& choice_;
  const Graph& joint_;
  std::vector<bool> is_cheap_, in_kernel_;  // by node
  // By value: in memory in the forward anyway; read in the backward by what is no kernel; only the
  // backward computes it; a constant.
  std::vector<bool> is_written_, is_read_by_call_, stays_, is_constant_;
  MaxFlow flow_;
};

}  // namespace

std::optional<std::vector<bool>> choose_saved(const SavingChoice& choice) {
  return Cut(choice).run();
}

}  // namespace smelt
