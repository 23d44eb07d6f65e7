#include "schedule/roles.h"

#include <algorithm>
#include <set>

#include "graph/alias.h"
#include "graph/numbers.h"
#include "ops/may_fail.h"
#include "ops/probe.h"
#include "schedule/late.h"

namespace smelt {
namespace {

// A kernel writes each element of its results once: no two may share a place. Room between them is
// left as it is.
bool is_apart(const TensorType& type) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (int d = 0; d < type.rank(); ++d) {
    if (type.sizes[d].is(1)) continue;
    if (!type.sizes[d].is_known() || !type.strides[d].is_known())
      return type.sizes.size() <= 1 || type.strides == contiguous_strides(type.sizes);
    dims.emplace_back(type.strides[d].known(), type.sizes[d].known());
  }
  std::sort(dims.begin(), dims.end());
  int64_t next = 1;
  for (const auto& [stride, size] : dims) {
    if (stride < next || (stride != next && !type.offset.is(0))) return false;
    next = stride * size;
  }
  return true;
}

// By where the node's first result is.
const Backend* backend_of(const Graph& graph, const Node& node,
                          std::span<const Backend* const> backends) {
  if (node.results.empty() || node.results[0] < 0) return nullptr;
  return backend_for(backends, graph.type(node.results[0]).device);
}

Decision fits_kernel(const Graph& graph, const Node& node, const Meaning* meaning,
                     const Backend* backend) {
  if (!meaning || (!meaning->element && !meaning->reduction && !meaning->scan && !meaning->update))
    return Decision::forbid("called through the dispatcher");
  if (!node.traits.is_pure()) return Decision::forbid("has effects");
  if (node.results.size() != 1 || node.results[0] < 0)
    return Decision::forbid("has several results");
  const TensorType& type = graph.type(node.results[0]);
  if (!backend) return Decision::forbid("no back end makes kernels for " + type.device.str());
  if (type.numel().is(0)) return Decision::forbid("has no elements");
  bool whole = true;
  for (const Arg& arg : node.args)
    each_ref(arg, [&](Ref ref) { whole &= !graph.type(ref.id).numel().is(0); });
  if (!whole) return Decision::forbid("takes a tensor without elements");
  if (!node.traits.view && !is_apart(type))
    return Decision::forbid("elements of its result share a place");
  const Decision lowered = can_lower(graph, node);
  return lowered || !meaning->update ? lowered : can_update(graph, node);
}

constexpr int kInlineCost = 4;
// What is computed on the way into an update is computed once for each thread's share of a row.
constexpr int kInlineIntoUpdate = 16;

// By value: the value whose memory kernels read for it. That is what it is a view of, except where
// a view shows the same bytes as other elements.
std::vector<ValueId> memory_of(const Graph& graph) {
  std::vector<ValueId> memory = view_roots(graph);
  for (const Node& node : graph.nodes) {
    if (!node.traits.view) continue;
    const ValueId shown = viewed(node);
    for (const ValueId result : node.results) {
      if (result < 0 || shown < 0) continue;
      const TensorType& type = graph.type(result);
      const TensorType& from = graph.type(memory[shown]);
      const bool same = type.dtype == from.dtype && type.conj == from.conj && type.neg == from.neg;
      memory[result] = same ? memory[shown] : result;
    }
  }
  return memory;
}

// Is the element of a factory a literal, wherever it is?
bool is_literal(const Graph& graph, const Node& node) {
  loops::Kernel kernel;
  kernel.outer = graph.type(node.results[0]).sizes;
  loops::Builder builder(kernel);
  Probe probe(graph, node, builder);
  const loops::Val element = element_of(probe).value;
  return kernel.insts[element].op == loops::Op::constant;
}

// By node: is each element of its result one number that is known now? As part of a kernel that is
// a literal, and needs neither memory nor time.
std::vector<bool> uniform_nodes(const Graph& graph, const Roles& roles) {
  std::vector<bool> uniform(graph.nodes.size());
  const auto is_uniform = [&](ValueId value) {
    const NodeId producer = graph.values[value].node;
    return producer >= 0 && uniform[producer];
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const Role role = roles.role[i];
    if (role == Role::inlined) uniform[i] = is_literal(graph, node);
    const bool follows = role == Role::view ? roles.looks_through[i]
                                            : role == Role::element &&
                                                  roles.meaning[i]->pattern == Pattern::pointwise;
    if (!follows) continue;
    bool any = false, all = true;
    for (const Arg& arg : node.args)
      each_ref(arg, [&](Ref ref) {
        any = true;
        all &= is_uniform(ref.id);
      });
    uniform[i] = any && all && (role == Role::view || !may_fail_in_kernel(graph, node));
  }
  return uniform;
}

}  // namespace

bool Roles::may_fail(const Graph& graph, NodeId node) const {
  return backend[node]->runs_on_host() && may_fail_in_kernel(graph, graph.nodes[node]);
}

bool Roles::run_together(const Graph& graph, NodeId a, NodeId b) const {
  return backend[a] == backend[b] && graph.type(graph.nodes[a].results[0]).device ==
                                         graph.type(graph.nodes[b].results[0]).device;
}

Roles::Roles(const Graph& graph, const ScheduleOptions& options, const Refused& refused)
    : role(graph.nodes.size(), Role::call),
      backend(graph.nodes.size()),
      meaning(graph.nodes.size()),
      form(graph.nodes.size()),
      update(graph.nodes.size()),
      looks_through(graph.nodes.size()),
      part(graph.nodes.size()),
      alone(graph.nodes.size()),
      root(memory_of(graph)),
      readers(graph.values.size()),
      is_output(graph.values.size()) {
  for (ValueId output : graph.outputs)
    if (output >= 0) is_output[output] = true;
  std::set<std::string> said;
  int current = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const NodeId id = static_cast<NodeId>(i);
    part[i] = current;
    if (node.traits.effect && !numbers::is_check(node.op)) ++current;
    for (const Arg& arg : node.args) {
      each_ref(arg, [&](Ref ref) {
        if (readers[ref.id].empty() || readers[ref.id].back() != id) readers[ref.id].push_back(id);
      });
    }
    if (options.backends.empty()) continue;
    meaning[i] = find_meaning(node.op);
    backend[i] = backend_of(graph, node, options.backends);
    alone[i] = refused.together.contains(id);
    const auto why = refused.at_all.find(id);
    const Decision fits = why == refused.at_all.end()
                              ? fits_kernel(graph, node, meaning[i], backend[i])
                              : Decision::forbid(why->second);
    if (!fits) {
      std::string sentence = node.op.str() + ": " + fits.reason();
      const bool is_op = !node.traits.view && !numbers::is_number_op(node.op);
      if (is_op && said.insert(sentence).second) refusals.push_back(sentence);
      continue;
    }
    if (node.traits.view) {
      role[i] = Role::view;
      const NodeId producer = graph.values[root[node.results[0]]].node;
      looks_through[i] = producer >= 0 && (in_kernel(producer) || role[producer] == Role::inlined);
    } else if (meaning[i]->reduction || meaning[i]->scan) {
      role[i] = meaning[i]->reduction ? Role::reduction : Role::scan;
      form[i] = (meaning[i]->reduction ? meaning[i]->reduction
                                       : meaning[i]->scan)(NodeReader(graph, node));
    } else if (current > 0 && may_fail(graph, id)) {
      // What is left to do would be done by PyTorch's ops, and the effects a second time.
      refusals.push_back(node.op.str() + ": may fail after an effect");
    } else if (meaning[i]->update && !can_lower(graph, node)) {
      role[i] = Role::update;
      update[i] = meaning[i]->update->form(NodeReader(graph, node));
    } else {
      role[i] = meaning[i]->pattern == Pattern::factory ? Role::inlined : Role::element;
    }
  }
  late = late_nodes(graph, *this);
  for (size_t i = 0; i < part.size(); ++i)
    if (late[i]) part[i] = current + 1;
  choose_inlined(graph);
}

void Roles::choose_inlined(const Graph& graph) {
  const std::vector<bool> uniform = uniform_nodes(graph, *this);
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (uniform[i] && role[i] == Role::element && !is_output[graph.nodes[i].results[0]])
      role[i] = Role::inlined;
  // What is read once per element, and elsewhere than at the reader's own place, is cheapest where
  // it is read.
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const NodeId id = static_cast<NodeId>(i);
    if (role[i] != Role::element) continue;
    const ValueId value = graph.nodes[i].results[0];
    const bool cheap = meaning[i]->cost <= kInlineCost &&
                       (read_once_elsewhere(graph, value, part[i]) || read_by_update(graph, id));
    // One that may fail is computed whole: eager fails because of any element.
    if (!is_output[value] && cheap &&
        (is_concatenated(graph, value) || !may_fail_in_kernel(graph, graph.nodes[i])))
      role[i] = Role::inlined;
  }
  inline_widened(graph);
  // An inlined value that is needed as a tensor, or in another part, is computed after all.
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    if (role[i] != Role::inlined) continue;
    const ValueId value = graph.nodes[i].results[0];
    const bool anywhere = uniform[i] || meaning[i]->pattern == Pattern::factory;
    if (!read_by_kernels(graph, value, anywhere ? -1 : part[i])) role[i] = Role::element;
  }
}

// What is computed from one tensor, of no more memory than it takes itself, and of a few numbers for
// each row is computed where it is read: f32 made of the bf16 result of a product, the distances of
// a batch from its mean. That memory is there anyway. On the host, where kernels are bound by what
// they compute as well, it is not done.
void Roles::inline_widened(const Graph& graph) {
  std::vector<std::vector<ValueId>> sources(graph.nodes.size());  // of inlined nodes
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (role[i] != Role::element || meaning[i]->pattern != Pattern::pointwise || late[i] ||
        backend[i]->runs_on_host())
      continue;
    const ValueId value = graph.nodes[i].results[0];
    const TensorType& type = graph.type(value);
    const auto elements = type.numel().as_known();
    if (!elements || is_output[value] || !read_by_kernels(graph, value, part[i]) ||
        may_fail_in_kernel(graph, graph.nodes[i]))
      continue;
    int64_t bytes = 0;
    bool there = true;
    std::vector<ValueId> found;
    const auto add = [&](ValueId source) {
      if (std::ranges::find(found, source) != found.end()) return;
      found.push_back(source);
      bytes += graph.type(source).numel().known() * bytes_of(graph.type(source).dtype);
    };
    for (const Arg& arg : graph.nodes[i].args)
      each_ref(arg, [&](Ref ref) {
        const ValueId memory = root[ref.id];  // behind views
        const NodeId maker = graph.values[memory].node;
        const auto count = graph.type(ref.id).numel().as_known();
        if (!count) {
          there = false;
        } else if (*count * 8 <= *elements) {
          return;  // a few numbers for each row
        } else if (maker >= 0 && role[maker] == Role::inlined) {
          there = there && !sources[maker].empty();
          for (const ValueId source : sources[maker]) add(source);
        } else {
          there = there && (maker < 0 || role[maker] == Role::call) &&
                  graph.type(memory).numel().is_known();
          if (there) add(memory);
        }
      });
    const int64_t own = *elements * bytes_of(type.dtype);
    // Of as much memory it takes little to compute: else a kernel that it is part of anyway has it.
    const bool saves =
        bytes < own || (bytes == own && found.size() == 1 && meaning[i]->cost <= kInlineCost);
    if (!there || found.empty() || !saves) continue;
    if (meaning[i]->cost > kInlineCost && full_readers(graph, value) > 1) continue;
    role[i] = Role::inlined;
    sources[i] = std::move(found);
  }
}

// The nodes that read about as many elements as there are.
int Roles::full_readers(const Graph& graph, ValueId value) const {
  int count = 0;
  const Size elements = graph.type(value).numel();
  for (const NodeId reader : readers[value]) {
    const int64_t made = graph.symbols.hint(graph.type(graph.nodes[reader].results[0]).numel());
    const bool few = role[reader] == Role::element && meaning[reader]->pattern == Pattern::gather &&
                     made * 8 <= graph.symbols.hint(elements);
    if (role[reader] == Role::view)
      count += full_readers(graph, graph.nodes[reader].results[0]);
    else
      count += few ? 0 : 1;
  }
  return count;
}

bool Roles::is_tensor(const Graph& graph, ValueId view) const {
  return is_output[view] || std::ranges::any_of(readers[view], [&](NodeId reader) {
           return takes_tensor(graph, reader, view) ||
                  (role[reader] == Role::view && is_tensor(graph, graph.nodes[reader].results[0]));
         });
}

// Is it read by kernels only, by itself and through views? In that part of the graph, if it is one.
bool Roles::read_by_kernels(const Graph& graph, ValueId value, int in_part) const {
  return !is_output[value] && std::ranges::all_of(readers[value], [&](NodeId reader) {
    if (in_part >= 0 && part[reader] != in_part) return false;
    if (role[reader] == Role::view)
      return read_by_kernels(graph, graph.nodes[reader].results[0], in_part);
    return (in_kernel(reader) || role[reader] == Role::inlined) &&
           !takes_tensor(graph, reader, value);
  });
}

// Is the one reader a concatenation, which reads every element? Its first argument is a list, and
// no element of it is left out.
bool Roles::is_concatenated(const Graph& graph, ValueId value) const {
  if (readers[value].size() != 1) return false;
  const Node& reader = graph.nodes[readers[value][0]];
  if (reader.args.empty() || !reader.args[0].is<ArgList>() || reader.results.size() != 1)
    return false;
  Size elements = 0;
  bool found = false;
  each_ref(reader.args[0], [&](Ref ref) {
    elements = elements + graph.type(ref.id).numel();
    found |= ref.id == value;
  });
  return found && elements == graph.type(reader.results[0]).numel();
}

ValueId Roles::base_of(const Graph& graph, NodeId node) const {
  if (role[node] != Role::update || !update[node]->base) return -1;
  return graph.nodes[node].args[*update[node]->base].get<Ref>().id;
}

// Is the node read only by an update that takes as many elements, or by what is computed on the way
// into such a one?
bool Roles::read_by_update(const Graph& graph, NodeId node) const {
  int cost = 0;
  const Size elements = graph.type(graph.nodes[node].results[0]).numel();
  for (NodeId at = node;;) {
    const ValueId value = graph.nodes[at].results[0];
    cost += meaning[at]->cost;
    if (cost > kInlineIntoUpdate || is_output[value] || readers[value].size() != 1) return false;
    if (graph.type(value).numel() != elements) return false;
    at = readers[value][0];
    if (part[at] != part[node]) return false;
    if (role[at] == Role::update)
      return product(update[at]->points) == elements && !takes_tensor(graph, at, value);
    if (role[at] != Role::inlined && role[at] != Role::view) return false;
  }
}

// Is the value read by one gather only, or by slices that show each element at most once?
bool Roles::read_once_elsewhere(const Graph& graph, ValueId value, int in_part) const {
  if (readers[value].size() == 1) {
    const NodeId reader = readers[value][0];
    if (role[reader] == Role::element && meaning[reader]->pattern == Pattern::gather)
      return part[reader] == in_part;
  }
  Size shown = 0;
  for (NodeId reader : readers[value]) {
    if (role[reader] != Role::view || part[reader] != in_part) return false;
    const ValueId view = graph.nodes[reader].results[0];
    if (is_output[view] || readers[view].size() != 1) return false;
    const NodeId last = readers[view][0];
    if (!in_kernel(last) || part[last] != in_part) return false;
    shown = shown + graph.type(view).numel();
  }
  const auto known = shown.as_known();
  const auto all = graph.type(value).numel().as_known();
  return readers[value].size() > 1 && known && all && *known <= *all;
}

}  // namespace smelt
