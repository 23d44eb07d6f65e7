// How groups grow. Three things must hold when a node joins a group:
//
// 1. It fits the group's domain: it computes one element per point, or one per outer point, or
//    combines the points over the same dimensions (at once, or running along them). A group of
//    plain pointwise nodes gets its reduced dimensions from the first reduction that joins.
// 2. What it reads of the group it reads at its own point. (A transposed read would need elements
//    that another point computes.)
// 3. Nothing outside the group stands between: no unit that reads the group is read by the node.
//    Every unit keeps the set of all units before it (a bit each), so that this is a lookup.
//
// An update writes its points in order, wherever they are: it is a group of its own.
//
// For whoever changes it: a group may only be read at its own points (2); units never form a cycle
// (3); a node never leaves its part of the graph (an effect may have changed what it reads).

#include "schedule/grouping.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>

#include "base/error.h"
#include "graph/numbers.h"

namespace smelt {
namespace {

Sizes sizes_of(const Graph& graph, const Roles& roles, NodeId node) {
  if (roles.role[node] == Role::update) return roles.update[node]->points;
  const ValueId value = roles.role[node] == Role::reduction
                            ? graph.nodes[node].args[0].get<Ref>().id
                            : graph.nodes[node].results[0];
  return graph.type(value).sizes;
}

// What it is, or most likely is.
int64_t likely(const Graph& graph, const Size& size) { return graph.symbols.hint(size); }

// The place of a point in a tensor of other sizes and as many elements, if its dimensions are those
// of the domain merged; nothing if one would have to be cut.
std::optional<Indices> reshaped_index(const Indices& at, const Sizes& from, const Sizes& to,
                                      const Domain& domain) {
  if (product(from) != product(to)) return std::nullopt;
  Sizes extents = domain.outer();
  const Sizes inner = domain.inner();
  extents.insert(extents.end(), inner.begin(), inner.end());
  Indices places = loops::unravel(loops::ravel(at, from), to, {extents});
  for (const Index& place : places)
    if (!place.is_affine()) return std::nullopt;
  return places;
}

// May the group pass over its rows several times? They should be in a cache then, and there should
// be rows for all threads. (A single pass they share even if there is one row: the code generator
// cuts it into slices.)
bool may_pass_again(const Graph& graph, const Domain& domain, bool columns,
                    const FusionLimits& limits) {
  const int64_t total = likely(graph, product(domain.full));
  if (domain.reduced.empty() || total <= limits.small_work) return true;
  const int64_t few = columns ? limits.few_columns : limits.few_rows;
  return likely(graph, product(domain.outer())) >= few &&
         likely(graph, product(domain.inner())) <= limits.longest_row;
}

// The dimension along which neighbours lie side by side; -1 if there is none.
int fastest_dim(const TensorType& type) {
  for (int d = 0; d < type.rank(); ++d)
    if (type.strides[d].is(1) && !type.sizes[d].is(1)) return d;
  return -1;
}

// Do elements that lie side by side belong to different outer points, where the domain is reduced?
bool is_columns(const Graph& graph, const Roles& roles, NodeId node, const Domain& domain) {
  const ValueId value =
      roles.form[node] ? graph.nodes[node].args[0].get<Ref>().id : graph.nodes[node].results[0];
  const TensorType& type = graph.type(value);
  if (type.sizes != domain.full) return false;
  const int fastest = fastest_dim(type);
  return fastest >= 0 && std::ranges::find(domain.reduced, fastest) == domain.reduced.end();
}

// Does it bring a large tensor into an order with other neighbours? A kernel that does only that
// walks in tiles; in one that reduces rows it would gather or scatter each element. (Group norm of
// 2 x 64 x 32 x 32 to channels-last, one thread: 293 us as one kernel, 78 and 48 as two.)
bool transposes(const Graph& graph, NodeId id, const FusionLimits& limits) {
  const Node& node = graph.nodes[id];
  const TensorType* from = nullptr;
  int tensors = 0;
  for (const Arg& arg : node.args)
    each_ref(arg, [&](Ref ref) {
      from = &graph.type(ref.id);
      ++tensors;
    });
  const TensorType& to = graph.type(node.results[0]);
  if (tensors != 1 || from->sizes != to.sizes || likely(graph, to.numel()) < limits.small_work)
    return false;
  const int before = fastest_dim(*from), after = fastest_dim(to);
  return before >= 0 && after >= 0 && before != after;
}

}  // namespace

std::optional<Place> place_in(const Graph& graph, const Roles& roles, NodeId node,
                              const Domain& domain) {
  const Sizes sizes = sizes_of(graph, roles, node);
  if (roles.form[node]) {
    if (sizes != domain.full || roles.form[node]->dims != domain.reduced) return std::nullopt;
    return Place{.outer = false, .reshaped = false, .at = domain.full_index()};
  }
  if (sizes == domain.full)
    return Place{.outer = false, .reshaped = false, .at = domain.full_index()};
  if (!domain.reduced.empty()) {
    for (const bool keepdim : {true, false})
      if (sizes == domain.kept(keepdim))
        return Place{.outer = true, .reshaped = false, .at = domain.outer_index(keepdim)};
  }
  if (auto at = reshaped_index(domain.full_index(), domain.full, sizes, domain))
    return Place{.outer = false, .reshaped = true, .at = std::move(*at)};
  if (domain.reduced.empty()) return std::nullopt;
  if (auto at = reshaped_index(domain.outer_index(false), domain.outer(), sizes, domain))
    return Place{.outer = true, .reshaped = true, .at = std::move(*at)};
  return std::nullopt;
}

Indices result_index(const Graph& graph, const Roles& roles, NodeId node, const Domain& domain) {
  if (roles.role[node] == Role::reduction) return domain.outer_index(roles.form[node]->keepdim);
  return place_in(graph, roles, node, domain)->at;
}

Grouping::Grouping(const Graph& graph, const Roles& roles, const ScheduleOptions& options)
    : graph_(graph),
      roles_(roles),
      options_(options),
      group_of_(graph.nodes.size(), -1),
      unit_of_node_(graph.nodes.size(), -1),
      groups_reading_(graph.values.size()),
      known_reads_(graph.nodes.size()) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const NodeId node = static_cast<NodeId>(i);
    switch (roles.role[i]) {
      case Role::element:
      case Role::reduction:
      case Role::scan: add_to_group(node); break;
      case Role::update: start_group(node); break;
      case Role::inlined: break;
      case Role::view:
        if (roles.is_tensor(graph, graph.nodes[i].results[0])) add_call(node);
        break;
      case Role::call: add_call(node);
    }
  }
}

const std::vector<Read>& Grouping::reads(NodeId node, const Domain& domain) const {
  KnownReads& known = known_reads_[node];
  if (!known.known || known.domain != domain) {
    const Indices at = place_in(graph_, roles_, node, domain)->at;
    known = {domain, reads_of(graph_, roles_, node, at, domain.outer(), domain.inner()), true};
  }
  return known.reads;
}

Grouping::UnitId Grouping::new_unit(NodeId first) {
  units_.emplace_back().first = first;
  const UnitId unit = static_cast<UnitId>(units_.size() - 1);
  if (barrier_ >= 0) depend(unit, barrier_);
  return unit;
}

void Grouping::depend(UnitId unit, UnitId on) {
  if (unit == on) return;
  const auto add = [&](Ancestors& to) {
    const Ancestors& from = units_[on].ancestors;
    to.resize(std::max({to.size(), from.size(), static_cast<size_t>(on / 64 + 1)}));
    for (size_t i = 0; i < from.size(); ++i) to[i] |= from[i];
    to[on / 64] |= uint64_t{1} << (on % 64);
  };
  add(units_[unit].ancestors);
  if (unit + 1 == static_cast<UnitId>(units_.size())) return;  // the newest: nobody reads it yet
  for (UnitId later = 0; later < static_cast<UnitId>(units_.size()); ++later)
    if (later != unit && depends(later, unit)) add(units_[later].ancestors);
}

bool Grouping::depends(UnitId unit, UnitId on) const {
  const Ancestors& ancestors = units_[unit].ancestors;
  return static_cast<size_t>(on / 64) < ancestors.size() &&
         (ancestors[on / 64] >> (on % 64) & 1) != 0;
}

std::vector<Grouping::UnitId> Grouping::dependencies(NodeId node) const {
  std::vector<UnitId> units;
  const std::function<void(ValueId)> visit = [&](ValueId value) {
    const NodeId producer = graph_.values[value].node;
    if (producer < 0) return;
    if (unit_of_node_[producer] >= 0) units.push_back(unit_of_node_[producer]);
    // A view without a unit of its own, or an inlined node: what it reads. A view with one reads
    // what it shows, too, when a kernel looks through it.
    if (unit_of_node_[producer] < 0 || roles_.role[producer] == Role::view)
      for (const Arg& arg : graph_.nodes[producer].args) each_ref(arg, [&](Ref r) { visit(r.id); });
  };
  for (const Arg& arg : graph_.nodes[node].args) each_ref(arg, [&](Ref ref) { visit(ref.id); });
  std::sort(units.begin(), units.end());
  units.erase(std::unique(units.begin(), units.end()), units.end());
  return units;
}

void Grouping::add_call(NodeId node) {
  const std::vector<UnitId> before = dependencies(node);
  const UnitId unit = new_unit(node);
  unit_of_node_[node] = unit;
  for (UnitId on : before) depend(unit, on);
  const Traits& traits = graph_.nodes[node].traits;
  // A check changes nothing: it only has to be made before what does.
  if (traits.is_pure() || numbers::is_check(graph_.nodes[node].op)) return;
  // What changes something, or draws numbers, stays where it stands.
  if (traits.effect)
    for (UnitId on = 0; on < unit; ++on)
      if (!units_[on].gone) depend(unit, on);
  barrier_ = unit;
}

std::optional<Domain> Grouping::joined_domain(NodeId node, const Group& group) const {
  Domain domain = group.domain;
  if (roles_.form[node] && domain.reduced.empty()) domain.reduced = roles_.form[node]->dims;
  if (place_in(graph_, roles_, node, domain)) return domain;
  // The group's sizes may be the node's merged: all of it moves to the finer domain.
  if (!group.domain.reduced.empty()) return std::nullopt;
  domain.full = sizes_of(graph_, roles_, node);
  return domain;
}

// Does the group as it is fit another domain?
bool Grouping::fits(int group, const Domain& domain) const {
  return std::ranges::all_of(groups_[group].nodes, [&](NodeId node) {
    return place_in(graph_, roles_, node, domain) &&
           reads_own_places(reads(node, domain), group, domain);
  });
}

bool Grouping::reads_own_places(const std::vector<Read>& reads, int group,
                                const Domain& domain) const {
  for (const Read& read : reads) {
    // A view that is not looked through shows the memory of a group's value.
    const NodeId shown = graph_.values[roles_.root[read.value]].node;
    const NodeId producer = graph_.values[read.value].node;
    if (shown >= 0 && shown != producer && group_of_[shown] == group) return false;
    if (producer < 0 || group_of_[producer] != group) continue;
    if (read.at != result_index(graph_, roles_, producer, domain)) return false;
  }
  return true;
}

// Is the node computed while the group passes over its points for the first time, or once per row?
// Then it reads nothing of the group that a reduction or scan comes before.
bool Grouping::in_first_pass(NodeId node, int group, const Domain& domain) const {
  if (place_in(graph_, roles_, node, domain)->outer) return true;
  return std::ranges::none_of(reads(node, domain), [&](const Read& read) {
    const NodeId producer = graph_.values[read.value].node;
    if (producer < 0 || group_of_[producer] != group) return false;
    if (roles_.form[producer]) return true;
    const std::optional<Place> place = place_in(graph_, roles_, producer, domain);
    return !place || place->outer;
  });
}

bool Grouping::transposes(NodeId node) const {
  return smelt::transposes(graph_, node, roles_.backend[node]->limits());
}

bool Grouping::has_transposed(const Group& group) const {
  return std::ranges::any_of(group.nodes, [&](NodeId node) { return transposes(node); });
}

bool Grouping::worth_a_row(NodeId node, int group, const Domain& domain) const {
  return may_pass_again(graph_, domain, is_columns(graph_, roles_, node, domain),
                        roles_.backend[node]->limits()) ||
         in_first_pass(node, group, domain);
}

bool Grouping::is_read_by(const std::vector<Read>& reads, int group) const {
  return std::ranges::any_of(reads, [&](const Read& read) {
    const NodeId producer = graph_.values[read.value].node;
    return producer >= 0 && group_of_[producer] == group;
  });
}

const char* Grouping::against_joining(NodeId node, int group,
                                      const std::optional<Domain>& domain) const {
  const Group& to = groups_[group];
  if (to.part != roles_.part[node]) return "memory is changed between them";
  if (is_update(group)) return "the first writes to places one after the other";
  if (roles_.alone[to.nodes[0]]) return "the first can't be compiled together with others";
  if (!runs_on_device_of(group, node)) return "they run on different devices";
  if (static_cast<int>(to.nodes.size()) >= options_.max_fused_nodes)
    return "the first has as many ops as a kernel may have (max_fused_nodes)";
  if (options_.fusion == Fusion::pointwise && (roles_.form[node] || !to.domain.reduced.empty()))
    return "the option fusion='pointwise' keeps reductions apart";
  if (!domain) return "they walk over other sizes, or reduce other dimensions";
  if (!worth_a_row(node, group, *domain))
    return "rows so long, or so few, are not worth another pass in the same kernel";
  if (!domain->reduced.empty() && (transposes(node) || has_transposed(to)))
    return "one reduces rows, and the other brings them into another order";
  const UnitId unit = unit_of_group_[group];
  for (UnitId on : dependencies(node))
    if (on != unit && depends(on, unit)) return "something else has to run between them";
  if (domain->full != to.domain.full && !fits(group, *domain))
    return "the sizes of the first do not fit the second";
  const std::vector<Read>& read = reads(node, *domain);
  if (!reads_own_places(read, group, *domain))
    return "an element of the second needs elements of the first from elsewhere";
  // Tensors of other sizes are walked together only where one is computed from the other.
  if (!is_read_by(read, group) &&
      (domain->full != to.domain.full || place_in(graph_, roles_, node, *domain)->reshaped))
    return "they have other sizes, and neither is computed from the other";
  return nullptr;
}

const char* Grouping::try_join(NodeId node, int group) {
  Group& to = groups_[group];
  const std::optional<Domain> domain = joined_domain(node, to);
  if (const char* why = against_joining(node, group, domain)) return why;
  const UnitId unit = unit_of_group_[group];
  const std::vector<UnitId> before = dependencies(node);
  to.domain = *domain;
  to.nodes.push_back(node);
  group_of_[node] = group;
  unit_of_node_[node] = unit;
  for (UnitId on : before) depend(unit, on);
  for (const Read& one : reads(node, *domain)) groups_reading_[one.value].push_back(group);
  return nullptr;
}

// Two groups that a node reads, of one domain: one kernel, if nothing stands between them.
const char* Grouping::try_merge(int into, int from) {
  Group& a = groups_[into];
  Group& b = groups_[from];
  const UnitId unit_a = unit_of_group_[into], unit_b = unit_of_group_[from];
  if (a.part != b.part) return "memory is changed between them";
  if (!runs_on_device_of(into, b.nodes[0])) return "they run on different devices";
  if (is_update(into) || is_update(from)) return "one writes to places one after the other";
  if (roles_.alone[a.nodes[0]] || roles_.alone[b.nodes[0]])
    return "one of them can't be compiled together with others";
  // The second may have what the first reduces rows to.
  const bool is_row = !a.domain.reduced.empty() && b.domain.reduced.empty() &&
                      b.domain.full == a.domain.kept(false);
  if (!is_row && (a.domain.full != b.domain.full ||
                  (!b.domain.reduced.empty() && a.domain.reduced != b.domain.reduced)))
    return "they walk over other sizes, or reduce other dimensions";
  if (static_cast<int>(a.nodes.size() + b.nodes.size()) > options_.max_fused_nodes)
    return "together they have more ops than a kernel may have (max_fused_nodes)";
  if (!a.domain.reduced.empty() && has_transposed(b))
    return "one reduces rows, and the other brings them into another order";
  for (UnitId unit = 0; unit < static_cast<UnitId>(units_.size()); ++unit)
    if (unit != unit_a && !units_[unit].gone &&
        ((depends(unit, unit_b) && depends(unit_a, unit)) ||
         (depends(unit, unit_a) && depends(unit_b, unit))))
      return "something else has to run between them";
  // Each may read the other, and must do so at its own point.
  for (const int reader : {into, from}) {
    const int other = reader == into ? from : into;
    for (NodeId node : groups_[reader].nodes) {
      if (!place_in(graph_, roles_, node, a.domain))
        return "they walk over other sizes, or reduce other dimensions";
      if (!reads_own_places(reads(node, a.domain), other, a.domain))
        return "an element of the one needs elements of the other from elsewhere";
      if (!worth_a_row(node, other, a.domain))
        return "rows so long, or so few, are not worth another pass in the same kernel";
    }
  }
  for (NodeId node : b.nodes) {
    group_of_[node] = into;
    unit_of_node_[node] = unit_a;
  }
  a.nodes.insert(a.nodes.end(), b.nodes.begin(), b.nodes.end());
  std::sort(a.nodes.begin(), a.nodes.end());
  b.nodes.clear();
  units_[unit_b].gone = true;
  depend(unit_a, unit_b);
  for (UnitId unit = 0; unit < static_cast<UnitId>(units_.size()); ++unit)
    if (unit != unit_a && depends(unit, unit_b)) depend(unit, unit_a);
  return nullptr;
}

// Is nothing saved by reading it once for several nodes? On the host such nodes share the start of
// a kernel; elsewhere a batch of kernels is started at once.
bool Grouping::is_little_beside(ValueId read, NodeId node) const {
  if (roles_.backend[node]->runs_on_host()) return false;
  const Size made = graph_.type(graph_.nodes[node].results[0]).numel();
  return graph_.type(read).numel().is(1) && likely(graph_, made) > 1;
}

// Does a node that has no group yet wait for something that waits for the unit? Asked of what is
// computed close by only: the search ends behind a few nodes.
bool Grouping::waits_behind(NodeId reader, UnitId unit) const {
  constexpr size_t kClose = 64;
  std::vector<NodeId> seen = {reader};
  for (size_t next = 0; next < seen.size() && seen.size() < kClose; ++next) {
    bool found = false;
    for (const Arg& arg : graph_.nodes[seen[next]].args)
      each_ref(arg, [&](Ref ref) {
        const NodeId producer = graph_.values[ref.id].node;
        if (producer < 0) return;
        const UnitId on = unit_of_node_[producer];
        found = found || (on >= 0 && on != unit && depends(on, unit));
        if (on < 0 && std::ranges::find(seen, producer) == seen.end()) seen.push_back(producer);
      });
    if (found) return true;
  }
  return false;
}

// Is the node's result read by kernels alone that can't be the group's, since they wait for something
// that waits for the group? Then it would be stored for them: what an optimizer computes of a
// parameter beside the forward pass that reads it as well.
bool Grouping::is_wanted_behind(NodeId node, int group) const {
  const ValueId result = graph_.nodes[node].results[0];
  if (roles_.role[node] != Role::element || roles_.is_output[result]) return false;
  const std::vector<NodeId>& readers = roles_.readers[result];
  return !readers.empty() && std::ranges::all_of(readers, [&](NodeId reader) {
    return roles_.in_kernel(reader) && waits_behind(reader, unit_of_group_[group]);
  });
}

void Grouping::add_to_group(NodeId node) {
  if (roles_.alone[node]) return start_group(node);
  std::vector<int> candidates;
  const auto add = [&](int group) {
    if (group >= 0 && !groups_[group].nodes.empty() &&
        std::find(candidates.begin(), candidates.end(), group) == candidates.end())
      candidates.push_back(group);
  };
  std::vector<UnitId> before;
  if (options_.fusion != Fusion::none) {
    before = dependencies(node);
    for (auto unit = before.rbegin(); unit != before.rend(); ++unit) add(units_[*unit].group);
    if (options_.fusion == Fusion::full)
      for (const Arg& arg : graph_.nodes[node].args)
        each_ref(arg, [&](Ref ref) {
          if (is_little_beside(ref.id, node)) return;
          const std::vector<int>& readers = groups_reading_[ref.id];
          for (auto group = readers.rbegin(); group != readers.rend(); ++group)
            if (!is_wanted_behind(node, *group)) add(*group);
        });
  }
  std::vector<Boundary> refused;
  for (int group : candidates) {
    if (const char* why = try_join(node, group)) {
      refused.push_back({group, -1, why});
      continue;
    }
    for (UnitId unit : before) {
      const int other = units_[unit].group;
      if (units_[unit].gone || other < 0 || other == group) continue;
      const char* why = try_merge(group, other);
      if (why && !groups_[other].domain.reduced.empty() && !try_merge(other, group)) return;
      if (why) boundaries_.push_back({other, group, why});
    }
    return;
  }
  start_group(node);
  for (Boundary& one : refused) {
    one.after = group_of_[node];
    if (is_read_by(reads(node, groups_[one.after].domain), one.before)) boundaries_.push_back(one);
  }
}

// Each pair of groups once, by what was said last; no group that has become part of another.
std::vector<Boundary> Grouping::boundaries() const {
  std::vector<Boundary> found;
  for (auto one = boundaries_.rbegin(); one != boundaries_.rend(); ++one) {
    const bool is_known = std::ranges::any_of(found, [&](const Boundary& other) {
      return other.before == one->before && other.after == one->after;
    });
    if (!is_known && !groups_[one->before].nodes.empty() && !groups_[one->after].nodes.empty())
      found.push_back(*one);
  }
  std::reverse(found.begin(), found.end());
  return found;
}

void Grouping::start_group(NodeId node) {
  Group group;
  group.part = roles_.part[node];
  group.domain.full = sizes_of(graph_, roles_, node);
  if (roles_.form[node]) group.domain.reduced = roles_.form[node]->dims;
  group.nodes = {node};
  const std::vector<UnitId> before = dependencies(node);
  const UnitId unit = new_unit(node);
  const int id = static_cast<int>(groups_.size());
  units_[unit].group = id;
  unit_of_group_.push_back(unit);
  unit_of_node_[node] = unit;
  group_of_[node] = id;
  for (UnitId on : before) depend(unit, on);
  for (const Read& read : reads(node, group.domain)) groups_reading_[read.value].push_back(id);
  groups_.push_back(std::move(group));
}

// Where a unit takes its turn: where it began. But a kernel that waits for no other op than kernels
// - in a backward graph, what is computed once more of what was saved - waits for the first unit
// that is not like that and reads it, so that its results are in memory no longer than needed.
// `next`: by unit, those that depend on it.
std::vector<NodeId> Grouping::wanted_at(const std::vector<std::vector<UnitId>>& next) const {
  std::vector<bool> waits_for_kernels(units_.size());
  for (size_t unit = 0; unit < units_.size(); ++unit)
    waits_for_kernels[unit] = units_[unit].group >= 0;
  for (size_t on = 0; on < units_.size(); ++on)
    if (!units_[on].gone && units_[on].group < 0)
      for (UnitId unit : next[on]) waits_for_kernels[unit] = false;
  std::vector<NodeId> wanted(units_.size());
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    wanted[unit] = units_[unit].first;
    if (!waits_for_kernels[unit]) continue;
    NodeId first_reader = std::numeric_limits<NodeId>::max();
    for (UnitId reader : next[unit])
      if (!waits_for_kernels[reader]) first_reader = std::min(first_reader, units_[reader].first);
    if (first_reader != std::numeric_limits<NodeId>::max())
      wanted[unit] = std::max(wanted[unit], first_reader);
  }
  return wanted;
}

std::vector<Unit> Grouping::order() const {
  // Of the units whose ancestors have all run, the one that began first; late ones last.
  std::vector<int> waiting(units_.size());
  std::vector<std::vector<UnitId>> next(units_.size());
  for (UnitId unit = 0; unit < static_cast<UnitId>(units_.size()); ++unit) {
    if (units_[unit].gone) continue;
    for (UnitId on = 0; on < static_cast<UnitId>(units_.size()); ++on) {
      if (on == unit || units_[on].gone || !depends(unit, on)) continue;
      ++waiting[unit];
      next[on].push_back(unit);
    }
  }
  const std::vector<NodeId> wanted = wanted_at(next);
  const auto place = [&](UnitId unit) {
    return std::tuple(roles_.late[units_[unit].first], wanted[unit], units_[unit].first);
  };
  const auto later = [&](UnitId a, UnitId b) { return place(a) > place(b); };
  std::priority_queue<UnitId, std::vector<UnitId>, decltype(later)> ready(later);
  size_t all = 0;
  for (UnitId unit = 0; unit < static_cast<UnitId>(units_.size()); ++unit) {
    if (units_[unit].gone) continue;
    ++all;
    if (waiting[unit] == 0) ready.push(unit);
  }
  std::vector<Unit> order;
  while (!ready.empty()) {
    const UnitId unit = ready.top();
    ready.pop();
    order.push_back(units_[unit].group >= 0 ? Unit{.kernel = units_[unit].group}
                                            : Unit{.node = units_[unit].first});
    for (UnitId after : next[unit])
      if (--waiting[after] == 0) ready.push(after);
  }
  SMELT_CHECK(order.size() == all, "the schedule has a cycle");
  return order;
}

}  // namespace smelt
