// Reads the text form that the head of print.cpp shows, line by line. A value has to be defined
// before the line that uses it, and exactly once; the ids are kept as they are written.
#include <map>
#include <utility>

#include "base/error.h"
#include "base/reader.h"
#include "graph/graph.h"

namespace smelt {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : reader_(text) {}

  Graph run() {
    reader_.skip_empty_lines();
    while (reader_.accept_word("symbol")) parse_symbol();
    while (reader_.accept_word("guard")) parse_guard();
    if (!reader_.accept_word("graph")) reader_.fail("'symbol', 'guard' or 'graph {'");
    if (reader_.accept_word("default")) parse_default();
    reader_.expect("{");
    reader_.end_line();
    while (reader_.accept_word("input")) parse_input();
    while (reader_.accept_word("const")) parse_constant();
    while (!reader_.accept_word("return")) parse_node();
    parse_return();
    reader_.expect("}");
    reader_.end_line();
    if (!reader_.at_end()) reader_.fail("the end of the text");
    place_values();
    return std::move(graph_);
  }

 private:
  struct Definition {
    Value value;
    size_t place;
  };

  void parse_symbol() {
    size_t place = reader_.place();
    Size next = Size::symbol(static_cast<int>(graph_.symbols.symbols().size()));
    if (read_size(reader_) != next)
      reader_.fail_at(place, "expected " + next.str() + ", symbols are numbered in order");
    reader_.expect("=");
    place = reader_.place();
    int64_t hint = static_cast<int64_t>(reader_.natural("the hint of the symbol"));
    if (hint < 2) reader_.fail_at(place, "the hint of a symbol is at least 2");
    graph_.symbols.add(hint, reader_.next_is("\"") ? reader_.quoted("a name") : "");
    reader_.end_line();
  }

  void parse_default() {
    const size_t place = reader_.place();
    const std::string_view name = reader_.peek_word();
    const std::optional<DType> dtype = parse_dtype(name);
    if (!dtype || !is_floating(*dtype)) reader_.fail_at(place, "expected a floating-point dtype");
    reader_.skip(name.size());
    graph_.default_float = *dtype;
  }

  void parse_guard() {
    Guard guard;
    guard.left = parse_size();
    guard.relation = parse_relation();
    guard.right = parse_size();
    guard.where = reader_.end_line();
    graph_.symbols.add_guard(std::move(guard));
  }

  Relation parse_relation() {
    // Those of two characters first: "<" begins "<=" too.
    for (Relation relation :
         {Relation::eq, Relation::ne, Relation::le, Relation::ge, Relation::lt, Relation::gt}) {
      if (reader_.accept(name_of(relation))) return relation;
    }
    reader_.fail("one of == != < <= > >=");
  }

  Size parse_size() {
    size_t place = reader_.place();
    Size size = read_size(reader_);
    check_symbols(size, place);
    return size;
  }

  void check_symbols(const Size& size, size_t place) {
    if (size.highest_symbol() < static_cast<int>(graph_.symbols.symbols().size())) return;
    reader_.fail_at(place, "s" + std::to_string(size.highest_symbol()) +
                               " is not declared with a line 'symbol'");
  }

  // "%3: f32[2]"
  ValueId parse_definition(NodeId node, size_t result) {
    size_t place = reader_.place();
    reader_.expect("%");
    ValueId id = reader_.index("the number of a value");
    reader_.expect(":");
    size_t type_place = reader_.place();
    TensorType type = read_type(reader_);
    if (type.sizes.size() != type.strides.size())
      reader_.fail_at(type_place, "expected as many strides as sizes");
    for (const Sizes* sizes : {&type.sizes, &type.strides}) {
      for (const Size& size : *sizes) check_symbols(size, type_place);
    }
    check_symbols(type.offset, type_place);
    Definition definition{{std::move(type), node, static_cast<int32_t>(result)}, place};
    if (!values_.emplace(id, std::move(definition)).second) {
      reader_.fail_at(place, "%" + std::to_string(id) + " is defined twice");
    }
    return id;
  }

  void check_use(ValueId id, size_t place) {
    if (!values_.contains(id))
      reader_.fail_at(place, "%" + std::to_string(id) + " is not defined before this line");
  }

  void parse_input() {
    Input input;
    input.value = parse_definition(-1, 0);
    reader_.expect("=");
    std::optional<Source> source = parse_source(reader_.peek_word());
    if (!source) reader_.fail("one of argument, captured, grad");
    reader_.skip(name_of(*source).size());
    input.source = *source;
    input.index = reader_.index("the index of the input");
    input.requires_grad = reader_.accept_word("requires_grad");
    graph_.inputs.push_back(input);
    reader_.end_line();
  }

  void parse_constant() {
    Constant constant;
    constant.value = parse_definition(-1, 0);
    reader_.expect("=");
    constant.digest = reader_.quoted("the digest of the constant, a string");
    graph_.constants.push_back(std::move(constant));
    reader_.end_line();
  }

  void parse_node() {
    Node node;
    size_t first = reader_.place();
    parse_results(node);
    node.op = OpName(reader_.word("a node, as '%2: f32[3] = op(%1)', or 'return'", ":.!"));
    reader_.expect("(");
    parse_args(node, first);
    while (!reader_.peek_word().empty()) {
      if (reader_.accept_word("effect"))
        node.traits.effect = true;
      else if (reader_.accept_word("random"))
        node.traits.random = true;
      else if (reader_.accept_word("view"))
        node.traits.view = true;
      else if (reader_.accept_word("grad"))
        node.traits.grad = true;
      else if (reader_.accept_word("loose"))
        node.traits.loose = true;
      else
        reader_.fail("one of effect, random, view, grad, loose");
    }
    graph_.nodes.push_back(std::move(node));
    reader_.end_line();
  }

  void parse_results(Node& node) {
    NodeId id = static_cast<NodeId>(graph_.nodes.size());
    if (!reader_.next_is("%") && reader_.peek_word() != "_") return;
    do {
      bool undefined = reader_.accept_word("_");
      node.results.push_back(undefined ? -1 : parse_definition(id, node.results.size()));
    } while (reader_.accept(","));
    reader_.expect("=");
  }

  // `first` is where the node begins: its own results are no arguments yet.
  void parse_args(Node& node, size_t first) {
    if (reader_.accept(")")) return;
    do {
      size_t place = reader_.place();
      node.args.push_back(read_arg(reader_));
      each_ref(std::as_const(node.args.back()), [&](Ref ref) {
        check_use(ref.id, place);
        if (values_.at(ref.id).place >= first)
          reader_.fail_at(place, "a node cannot take its own result");
      });
      each_size(node.args.back(), [&](const Size& size) { check_symbols(size, place); });
    } while (reader_.accept(","));
    reader_.expect(")");
  }

  void parse_return() {
    reader_.expect("(");
    if (!reader_.accept(")")) {
      do {
        if (reader_.accept_word("none")) {
          graph_.outputs.push_back(-1);
          continue;
        }
        size_t place = reader_.place();
        reader_.expect("%");
        graph_.outputs.push_back(reader_.index("the number of a value"));
        check_use(graph_.outputs.back(), place);
      } while (reader_.accept(","));
      reader_.expect(")");
    }
    reader_.end_line();
  }

  // Ids are dense: the values of a graph are an array.
  void place_values() {
    graph_.values.resize(values_.size());
    for (auto& [id, definition] : values_) {
      if (static_cast<size_t>(id) >= values_.size()) {
        reader_.fail_at(definition.place, "%" + std::to_string(id) + " leaves a gap: there are " +
                                              std::to_string(values_.size()) +
                                              " values, numbered from %0");
      }
      graph_.values[id] = std::move(definition.value);
    }
  }

  Reader reader_;
  Graph graph_;
  std::map<ValueId, Definition> values_;
};

}  // namespace

Graph Graph::parse(std::string_view text) {
  try {
    return Parser(text).run();
  } catch (const Error& error) {
    throw Error(std::string("this is not the text of a graph: ") + error.what());
  }
}

}  // namespace smelt
