// The tensor program: SSA, functional, typed. A node computes new values from old ones and changes
// nothing, except for the few effect ops of smelt's own (graph/effects.h) that stand in order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/arg.h"
#include "base/symbols.h"
#include "base/type.h"
#include "graph/op_name.h"

namespace smelt {

using ValueId = int32_t;
using NodeId = int32_t;

// What a node does besides computing its results.
struct Traits {
  bool effect = false;  // changes something outside: never removed, never moved over another effect
  bool random = false;  // draws from a generator: never removed, merged or reordered
  bool view = false;    // the results share memory with the first tensor argument
  bool grad = false;    // the kernel looks at the grad mode, and it was on
  bool loose = false;   // of 0 and -0 it may give either: nobody sees the sign

  bool is_pure() const { return !effect && !random; }
  friend bool operator==(const Traits&, const Traits&) = default;
};

struct Node {
  OpName op;
  std::vector<Arg> args;         // positional, in the order of the op's schema, defaults included
  std::vector<ValueId> results;  // -1 for a result the op left undefined
  Traits traits;
};

struct Value {
  TensorType type;
  NodeId node = -1;  // -1: an input or a constant
  int32_t result = 0;
};

// Where an input comes from when the graph runs.
enum class Source : uint8_t {
  argument,  // the index-th tensor argument of the recorded function
  captured,  // the index-th tensor the function reached by itself (a parameter, a closure)
  grad,      // .grad of the input with that index
};
std::string_view name_of(Source source);
std::optional<Source> parse_source(std::string_view name);

struct Input {
  ValueId value = -1;
  Source source = Source::argument;
  int32_t index = 0;
  bool requires_grad = false;
};

// A tensor known when the graph was written down. The data is the capturing side's; the text form
// carries the type and the digest only.
struct Constant {
  ValueId value = -1;
  std::shared_ptr<const void> data;
  std::string digest;  // identifies the contents: equal digests, equal constants
};

class Graph {
 public:
  SymbolTable symbols;
  // torch.get_default_dtype() where the program was written down: what integers become where an op
  // makes floats of them, and what a Python float counts as beside them.
  DType default_float = DType::f32;
  std::vector<Input> inputs;
  std::vector<Constant> constants;
  std::vector<Node> nodes;  // in execution order
  std::vector<Value> values;
  std::vector<ValueId> outputs;  // -1: the function returned no tensor there

  ValueId add_input(TensorType type, Source source, int32_t index, bool requires_grad = false);
  ValueId add_constant(TensorType type, std::shared_ptr<const void> data, std::string digest);
  // Appends a node; makes one value per type (nothing: the op left that result undefined).
  NodeId add_node(OpName op, std::vector<Arg> args,
                  std::span<const std::optional<TensorType>> types, Traits traits = {});

  const TensorType& type(ValueId value) const { return values[value].type; }

  // Puts `to` wherever `from` is used: arguments, outputs.
  void replace_uses(ValueId from, ValueId to);
  // How often each value is used by nodes and outputs.
  std::vector<int32_t> use_counts() const;
  // Drops the nodes for which keep[i] is false and the values nobody defines any more; renumbers
  // both densely and in order, also where nodes were inserted, moved or erased by hand before.
  void keep_nodes(const std::vector<bool>& keep);

  // The text form. parse(str()) gives an equal graph (constants without data).
  std::string str() const;
  static Graph parse(std::string_view text);  // Error with line and column on bad text
  // SSA order, ids in range, types whole, effects well formed; an InternalError says what is not.
  void verify() const;
  // Stable over processes, and the same for graphs that differ only in how values are numbered,
  // what symbols are called and where guards come from.
  uint64_t hash() const;
};

// The line of one node, as in Graph::str: "%4: f32[2] = aten::neg(%3)".
std::string str(const Graph& graph, const Node& node);

}  // namespace smelt
