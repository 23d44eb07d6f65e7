#include "graph/known_sizes.h"

#include <vector>

#include "base/polynomial.h"

namespace smelt {
namespace {

template <class Replace>
void replace_sizes(Arg& arg, const Replace& replace) {
  if (arg.is<Size>()) arg = Arg(replace(arg.get<Size>()));
  if (arg.is<ArgList>())
    for (Arg& item : std::get<ArgList>(arg)) replace_sizes(item, replace);
}

template <class Replace>
void replace_sizes(Graph& graph, const Replace& replace) {
  for (Value& value : graph.values) {
    for (Sizes* sizes : {&value.type.sizes, &value.type.strides})
      for (Size& size : *sizes) size = replace(size);
    value.type.offset = replace(value.type.offset);
  }
  for (Node& node : graph.nodes)
    for (Arg& arg : node.args) replace_sizes(arg, replace);
}

Size substitute(const Size& size, std::span<const Size> symbols) {
  if (size.is_known()) return size;
  Size sum = 0;
  for (const Term& term : size.form()->terms) {
    Size product = term.coefficient;
    for (const Atom& atom : term.atoms) {
      if (atom.kind == Atom::Kind::symbol) {
        product = product * symbols[atom.symbol];
        continue;
      }
      const Size left = substitute(atom.left, symbols), right = substitute(atom.right, symbols);
      switch (atom.kind) {
        case Atom::Kind::floor_div: product = product * floor_div(left, right); break;
        case Atom::Kind::modulo: product = product * modulo(left, right); break;
        case Atom::Kind::min: product = product * min(left, right); break;
        default: product = product * max(left, right); break;
      }
    }
    sum = sum + product;
  }
  return sum;
}

}  // namespace

Graph with_known_sizes(Graph graph, std::span<const int64_t> symbols) {
  replace_sizes(graph, [&](const Size& size) { return Size(size.evaluate(symbols)); });
  graph.symbols = {};
  return graph;
}

void settle_symbols(Graph& graph) {
  const size_t count = graph.symbols.symbols().size();
  std::vector<Size> symbols;
  for (size_t i = 0; i < count; ++i) symbols.push_back(Size::symbol(static_cast<int>(i)));
  bool any = false;
  // What one guard says may make another say more: 2*s0 == s1 and s1 == 8 is left as it is, though.
  const auto settle = [&](const Size& symbol, const Size& value) {
    const auto index = symbol.as_symbol();
    if (!index || !(symbols[*index] == symbol)) return;
    const auto other = value.as_symbol();
    if (!value.is_known() && !(other && *other < *index)) return;
    symbols[*index] = value;
    any = true;
  };
  for (const Guard& guard : graph.symbols.guards()) {
    if (guard.relation != Relation::eq) continue;
    settle(guard.left, guard.right);
    settle(guard.right, guard.left);
  }
  if (!any) return;
  // Earlier ones first: a symbol that equals one which has a number has it too.
  for (Size& symbol : symbols) symbol = substitute(symbol, symbols);
  replace_sizes(graph, [&](const Size& size) { return substitute(size, symbols); });
}

}  // namespace smelt
