// Of two pure nodes with the same op and the same arguments the second is dropped and read from the
// first. Stands after the passes that make arguments equal (simplify_views) and before remove_dead,
// which then sees the fewest readers.
//
// Equal means: no reader inside the graph and no caller outside can tell. So arguments are compared
// by their bits (a NaN equals itself, -0.0 is not 0.0), and two results stay two where
//  - both are handed out, since they are two tensor objects in eager;
//  - the memory of both escapes, since the caller may change one of them;
//  - the memory of one is changed by a mutator;
//  - memory that the nodes read was written between them.
// Views of one value share its memory already: for them only the first and the last point count.

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "graph/effects.h"
#include "passes/passes.h"
#include "passes/rewriting/ownership.h"
#include "passes/rewriting/replacements.h"

namespace smelt {
namespace {

template <class T>
void append_bits(std::string& key, const T& value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  key.append(bytes, sizeof(T));
}

void append_text(std::string& key, const std::string& text) {
  append_bits(key, text.size());
  key += text;
}

struct KeyWriter {
  std::string& key;

  void operator()(None) {}
  void operator()(const Size& size) {
    append_bits(key, size.is_known());
    if (size.is_known()) {
      append_bits(key, size.known());
    } else {
      append_text(key, size.str());
    }
  }
  void operator()(const std::complex<double>& value) {
    append_bits(key, value.real());
    append_bits(key, value.imag());
  }
  void operator()(const std::string& text) { append_text(key, text); }
  void operator()(const Device& device) {
    append_bits(key, device.type);
    append_bits(key, device.index);
  }
  void operator()(const ArgList& list) {
    append_bits(key, list.size());
    for (const Arg& arg : list) write(arg);
  }
  template <class T>
  void operator()(const T& value) {  // a number, an enum or a struct of one
    static_assert(std::has_unique_object_representations_v<T> || std::is_same_v<T, double>);
    append_bits(key, value);
  }
  void write(const Arg& arg) {
    append_bits(key, arg.index());
    std::visit(*this, static_cast<const Arg::variant&>(arg));
  }
};

// Equal keys: the same op on the same arguments, bit for bit.
std::string key_of(const Node& node) {
  std::string key = node.op.str();
  key += '\0';
  key += node.traits.view ? 'v' : 'n';
  key += node.traits.grad ? 'g' : 'n';
  key += node.traits.loose ? 'l' : 'n';
  KeyWriter writer{key};
  for (const Arg& arg : node.args) writer.write(arg);
  return key;
}

class Merger {
 public:
  explicit Merger(Graph& graph) : graph_(graph), own_(graph), written_(graph.values.size(), -1) {}

  bool run() {
    std::vector<bool> keep(graph_.nodes.size(), true);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node& node = graph_.nodes[i];
      replacements_.apply(node);
      if (node.op == effects::kWrite) note_write(node, static_cast<NodeId>(i));
      keep[i] = !merge(static_cast<NodeId>(i));
    }
    if (!replacements_.any()) return false;
    replacements_.apply(graph_.outputs);
    graph_.keep_nodes(keep);
    return true;
  }

 private:
  void note_write(const Node& node, NodeId at) {
    written_[own_.roots[node.args.at(0).get<Ref>().id]] = at;
  }

  // Finds an earlier node for this one; if there is none, offers it to those that follow.
  bool merge(NodeId later) {
    const Node& node = graph_.nodes[later];
    if (!node.traits.is_pure() || node.results.empty() || effects::is_mutator(node.op))
      return false;
    std::vector<NodeId>& candidates = seen_[key_of(node)];
    for (NodeId earlier : candidates) {
      if (!may_merge(earlier, later)) continue;
      take_over(graph_.nodes[earlier], node);
      return true;
    }
    candidates.push_back(later);
    return false;
  }

  bool may_merge(NodeId earlier, NodeId later) const {
    const Node& a = graph_.nodes[earlier];
    const Node& b = graph_.nodes[later];
    return std::ranges::equal(
               a.results, b.results,
               [&](ValueId x, ValueId y) { return may_be_one(x, y, b.traits.view); }) &&
           !written_between(earlier, b);
  }

  bool may_be_one(ValueId a, ValueId b, bool view) const {
    if (a < 0 || b < 0) return a == b;
    if (graph_.type(a) != graph_.type(b)) return false;
    if (own_.handed_out[a] && own_.handed_out[b]) return false;
    if (view) return true;
    return !(own_.escapes[a] && own_.escapes[b]) && !own_.mutated[a] && !own_.mutated[b];
  }

  // Whether memory that the node reads was written after `earlier` ran. Only inputs are written,
  // and inputs are never merged, so the roots of before this pass are good.
  bool written_between(NodeId earlier, const Node& node) const {
    bool written = false;
    for (const Arg& arg : node.args) {
      each_ref(arg, [&](Ref ref) { written |= written_[own_.roots[ref.id]] > earlier; });
    }
    return written;
  }

  void take_over(const Node& earlier, const Node& later) {
    for (size_t i = 0; i < later.results.size(); ++i) {
      const ValueId from = later.results[i];
      const ValueId to = earlier.results[i];
      if (from < 0) continue;
      replacements_.put(from, to);
      own_.handed_out[to] = own_.handed_out[to] || own_.handed_out[from];
      own_.escapes[to] = own_.escapes[to] || own_.escapes[from];
    }
  }

  Graph& graph_;
  Ownership own_;
  std::vector<NodeId> written_;  // by root: the last smelt::write so far
  Replacements replacements_;
  std::unordered_map<std::string, std::vector<NodeId>> seen_;
};

}  // namespace

bool merge_equal(Graph& graph, const PassOptions&) { return Merger(graph).run(); }

}  // namespace smelt
