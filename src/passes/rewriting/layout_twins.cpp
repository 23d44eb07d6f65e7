#include "passes/rewriting/layout_twins.h"

#include "graph/effects.h"
#include "ops/facts.h"
#include "ops/rules/layout.h"

namespace smelt {
namespace {

// Does it say where in memory its result is, and not which elements it has?
bool names_places(const OpName& op) {
  static const OpName kReshapeAlias("aten::_reshape_alias");
  return facts_of(op).names_places || op == kReshapeAlias;
}

MemoryFormat channels_last_format(const TensorType& type) {
  return type.rank() == 5 ? kChannelsLast3d : kChannelsLast;
}

bool has_channels_last(SymbolTable& symbols, const TensorType& type) {
  return type.rank() == 5 ? is_channels_last_3d(symbols, type) : is_channels_last(symbols, type);
}

}  // namespace

TensorType in_channels_last(const TensorType& type) {
  const Sizes& sizes = type.sizes;
  Sizes strides = type.rank() == 3 ? Sizes{sizes[1] * sizes[2], 1, sizes[1]}
                                   : *format_strides(sizes, channels_last_format(type));
  return fresh(type.dtype, type.device, sizes, std::move(strides));
}

void LayoutTwins::add(Node node) {
  if (!has_twin(node) || !follow(node)) add_plain(std::move(node));
}

void LayoutTwins::add_plain(Node node) {
  for (Arg& arg : node.args) each_ref(arg, [&](Ref& ref) { ref.id = plain(ref.id); });
  writer_.keep(std::move(node));
}

void LayoutTwins::bring_back(Node node) {
  apply(node);
  for (const Arg& arg : node.args) each_ref(arg, [&](Ref ref) { plain(ref.id); });
}

void LayoutTwins::put(ValueId old, ValueId made) {
  twins_.resize(graph_.values.size(), -1);
  if (graph_.type(made) == graph_.type(old))
    replacements_.put(old, made);
  else
    twins_[old] = made;
}

bool LayoutTwins::has_twin(const Node& node) const {
  bool found = false;
  for (const Arg& arg : node.args)
    each_ref(arg, [&](Ref ref) { found = found || twin(ref.id) >= 0; });
  return found;
}

ValueId LayoutTwins::channels_last(ValueId value) {
  if (twin(value) >= 0 && has_channels_last(graph_.symbols, graph_.type(twin(value))))
    return twin(value);
  if (has_channels_last(graph_.symbols, graph_.type(value))) return value;
  return copy(at_hand(value), channels_last_format(graph_.type(value)));
}

void LayoutTwins::put_channels_last(ValueId value) {
  value = replacements_.of(value);
  const bool is_plain = twin(value) < 0;
  const ValueId made = channels_last(value);
  if (made == value || made == twin(value)) return;
  if (is_plain) copies_[{made, kContiguous.value}] = value;  // no need to copy it back
  put(value, made);
}

ValueId LayoutTwins::copy(ValueId value, MemoryFormat format) {
  ValueId& made = copies_.try_emplace({value, format.value}, -1).first->second;
  if (made >= 0) return made;
  made = writer_.call("aten::clone", {Ref{value}, format});
  ++copied_;
  if (made >= 0) return made;
  good_ = false;
  return made = value;
}

ValueId LayoutTwins::plain(ValueId value) {
  if (twin(value) < 0) return value;
  const ValueId made = copy(twin(value), kContiguous);
  good_ = good_ && graph_.type(made) == graph_.type(value);
  return made;
}

bool LayoutTwins::follow(const Node& node) {
  if (!node.traits.is_pure() || effects::is_mutator(node.op) || names_places(node.op)) return false;
  Node moved = node;
  for (Arg& arg : moved.args) each_ref(arg, [&](Ref& ref) { ref.id = at_hand(ref.id); });
  const std::vector<std::optional<TensorType>> types = writer_.types_of(node.op, moved.args);
  if (types.size() != node.results.size()) return false;
  for (size_t i = 0; i < types.size(); ++i) {
    if (node.results[i] < 0) continue;
    const TensorType& before = graph_.type(node.results[i]);
    if (!types[i] || types[i]->sizes != before.sizes || types[i]->dtype != before.dtype)
      return false;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (node.results[i] < 0) continue;
    moved.results[i] = static_cast<ValueId>(graph_.values.size());
    graph_.values.push_back({.type = *types[i]});
  }
  writer_.keep(moved);
  for (size_t i = 0; i < types.size(); ++i)
    if (node.results[i] >= 0) put(node.results[i], moved.results[i]);
  return true;
}

void LayoutTwins::finish() {
  replacements_.apply(graph_.outputs);
  for (ValueId& output : graph_.outputs)
    if (output >= 0) output = plain(output);
  writer_.finish();
}

}  // namespace smelt
