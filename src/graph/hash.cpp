// FNV-1a over words instead of bytes, each mixed once more, so that the result is the same in every
// process and on every machine. Everything has a fixed or a leading length: no two contents run
// into each other.
#include <algorithm>
#include <bit>
#include <cmath>

#include "graph/graph.h"

namespace smelt {
namespace {

class Hasher {
 public:
  explicit Hasher(const Graph& graph) : graph_(graph), numbers_(graph.values.size(), -1) {}

  uint64_t run() {
    add_symbols();
    add_word(static_cast<uint64_t>(graph_.default_float));
    add_word(graph_.inputs.size());
    for (const Input& input : graph_.inputs) {
      define(input.value);
      add_word(static_cast<uint64_t>(input.source));
      add_word(input.index);
      add_word(input.requires_grad);
    }
    add_word(graph_.constants.size());
    for (const Constant& constant : graph_.constants) {
      define(constant.value);
      add_text(constant.digest);
    }
    add_word(graph_.nodes.size());
    for (const Node& node : graph_.nodes) add_node(node);
    add_word(graph_.outputs.size());
    for (ValueId output : graph_.outputs) add_use(output);
    return state_;
  }

 private:
  void add_word(uint64_t word) {
    state_ = (state_ ^ word) * 0x100000001b3;
    state_ ^= state_ >> 29;
  }

  // Eight characters at a time, the first one lowest on every machine.
  void add_text(std::string_view text) {
    add_word(text.size());
    for (size_t start = 0; start < text.size(); start += 8) {
      uint64_t word = 0;
      const size_t count = std::min<size_t>(8, text.size() - start);
      for (size_t i = 0; i < count; ++i)
        word |= uint64_t{static_cast<unsigned char>(text[start + i])} << 8 * i;
      add_word(word);
    }
  }

  void add_size(const Size& size) {
    add_word(static_cast<uint64_t>(size.is_known()));
    if (size.is_known())
      add_word(static_cast<uint64_t>(size.known()));
    else
      add_text(size.str());
  }

  void add_sizes(const Sizes& sizes) {
    add_word(sizes.size());
    for (const Size& size : sizes) add_size(size);
  }

  void add_type(const TensorType& type) {
    add_word(static_cast<uint64_t>(type.dtype));
    add_word(static_cast<uint64_t>(type.device.type));
    add_word(static_cast<uint64_t>(type.device.index));
    add_sizes(type.sizes);
    add_sizes(type.strides);
    add_size(type.offset);
    add_word(static_cast<uint64_t>(type.conj | type.neg << 1 | type.wrapped_number << 2));
  }

  void define(ValueId value) {
    add_word(static_cast<uint64_t>(value >= 0));
    if (!exists(value)) return;
    numbers_[value] = next_++;
    add_type(graph_.type(value));
  }

  // Values by the order of their definition, not by their ids: these differ for equal programs.
  void add_use(ValueId value) {
    add_word(static_cast<uint64_t>(exists(value) ? numbers_[value] : -1));
  }

  // A pass is asked for the hash of what it left before that is known to be whole.
  bool exists(ValueId value) const {
    return value >= 0 && static_cast<size_t>(value) < numbers_.size();
  }

  void add_node(const Node& node) {
    add_text(node.op.str());
    add_word(node.args.size());
    for (const Arg& arg : node.args) add_arg(arg);
    add_word(static_cast<uint64_t>(node.traits.effect | node.traits.random << 1 |
                                   node.traits.view << 2 | node.traits.grad << 3 |
                                   node.traits.loose << 4));
    add_word(node.results.size());
    for (ValueId result : node.results) define(result);
  }

  void add_arg(const Arg& arg) {
    add_word(arg.index());
    if (arg.is<Ref>()) {
      add_use(arg.get<Ref>().id);
    } else if (arg.is<Size>()) {
      add_size(arg.get<Size>());
    } else if (arg.is<double>()) {
      double value = arg.get<double>();
      // All NaNs are one argument.
      add_word(std::isnan(value) ? ~uint64_t{0} : std::bit_cast<uint64_t>(value));
    } else if (arg.is<ArgList>()) {
      add_word(arg.get<ArgList>().size());
      for (const Arg& element : arg.get<ArgList>()) add_arg(element);
    } else {
      add_text(str(arg));
    }
  }

  void add_symbols() {
    add_word(graph_.symbols.symbols().size());
    for (const Symbol& symbol : graph_.symbols.symbols()) add_word(symbol.hint);
    add_word(graph_.symbols.guards().size());
    for (const Guard& guard : graph_.symbols.guards()) {
      add_size(guard.left);
      add_word(static_cast<uint64_t>(guard.relation));
      add_size(guard.right);
    }
  }

  const Graph& graph_;
  std::vector<int64_t> numbers_;  // of each value, -1 before its definition
  int64_t next_ = 0;
  uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace

uint64_t Graph::hash() const { return Hasher(*this).run(); }

}  // namespace smelt
