// The text form of a graph; parse.cpp reads it. One line for each symbol, guard, input, constant
// and node:
//
//   symbol s0 = 4 "batch"
//   guard s0 <= 64  # model.py:12
//   graph default f64 {
//     input %0: f32[s0, 10] = argument 0
//     input %1: f32[5, 10] = captured 0 requires_grad
//     input %2: f32[5, 10] = grad 1
//     const %3: i64[2] = "9f3ac1"
//     %4: f32[10, 5]{1, 10} = aten::t(%1) view
//     %5: f32[s0, 5], _ = aten::something(%0, %4, none, [1, 2], true) random
//     smelt::set_grad(%1, %2) effect
//     return (%5, none)
//   }
//
// "default f64" is left out where the default dtype is f32.
#include <algorithm>
#include <array>

#include "base/reader.h"
#include "graph/graph.h"

namespace smelt {
namespace {

constexpr auto kSourceNames = std::to_array<std::string_view>({"argument", "captured", "grad"});

void append_value(std::string& text, const Graph& graph, ValueId value) {
  if (value < 0) {
    text += '_';
    return;
  }
  text += "%" + std::to_string(value) + ": " + graph.type(value).str();
}

void append_symbols(std::string& text, const SymbolTable& table) {
  for (size_t i = 0; i < table.symbols().size(); ++i) {
    const Symbol& symbol = table.symbols()[i];
    text += "symbol s" + std::to_string(i) + " = " + std::to_string(symbol.hint);
    if (!symbol.name.empty()) text += " " + quote(symbol.name);
    text += '\n';
  }
  for (const Guard& guard : table.guards()) {
    text += "guard " + guard.str();
    std::string where = guard.where;
    std::replace(where.begin(), where.end(), '\n', ' ');
    if (!where.empty()) text += "  # " + where;
    text += '\n';
  }
}

}  // namespace

std::string_view name_of(Source source) { return kSourceNames[static_cast<size_t>(source)]; }

std::optional<Source> parse_source(std::string_view name) {
  auto found = std::find(kSourceNames.begin(), kSourceNames.end(), name);
  if (found == kSourceNames.end()) return std::nullopt;
  return static_cast<Source>(found - kSourceNames.begin());
}

std::string str(const Graph& graph, const Node& node) {
  std::string text;
  for (size_t i = 0; i < node.results.size(); ++i) {
    if (i) text += ", ";
    append_value(text, graph, node.results[i]);
  }
  if (!node.results.empty()) text += " = ";
  text += node.op.str() + "(";
  for (size_t i = 0; i < node.args.size(); ++i) {
    if (i) text += ", ";
    text += str(node.args[i]);
  }
  text += ")";
  if (node.traits.effect) text += " effect";
  if (node.traits.random) text += " random";
  if (node.traits.view) text += " view";
  if (node.traits.grad) text += " grad";
  if (node.traits.loose) text += " loose";
  return text;
}

std::string Graph::str() const {
  std::string text;
  append_symbols(text, symbols);
  text += "graph ";
  if (default_float != DType::f32) text += "default " + std::string(name_of(default_float)) + " ";
  text += "{\n";
  for (const Input& input : inputs) {
    text += "  input ";
    append_value(text, *this, input.value);
    text += " = " + std::string(name_of(input.source)) + " " + std::to_string(input.index);
    text += input.requires_grad ? " requires_grad\n" : "\n";
  }
  for (const Constant& constant : constants) {
    text += "  const ";
    append_value(text, *this, constant.value);
    text += " = " + quote(constant.digest) + "\n";
  }
  for (const Node& node : nodes) text += "  " + smelt::str(*this, node) + "\n";
  text += "  return (";
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (i) text += ", ";
    text += outputs[i] < 0 ? "none" : "%" + std::to_string(outputs[i]);
  }
  return text + ")\n}\n";
}

}  // namespace smelt
