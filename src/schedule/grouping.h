// Nodes that share a kernel. Built node by node in the graph's order: a node joins the group of
// something it reads, or of something that reads the same, or starts a group of its own.
#pragma once

#include <vector>

#include "schedule/domain.h"
#include "schedule/pull.h"
#include "schedule/roles.h"

namespace smelt {

// Where a node of a group stands: at each point, or at each outer point only.
struct Place {
  bool outer = false;
  bool reshaped = false;  // its sizes are others, of as many elements in the same row-major order
  Indices at;             // of its result's element; of a reduction: of the element it combines
};
// Nothing: the node does not fit this domain.
std::optional<Place> place_in(const Graph& graph, const Roles& roles, NodeId node,
                              const Domain& domain);
// Where the result of a node of the group stands.
Indices result_index(const Graph& graph, const Roles& roles, NodeId node, const Domain& domain);

struct Group {
  Domain domain;
  std::vector<NodeId> nodes;  // in the graph's order
  int part = 0;
};

// Two groups of which one reads the other, and why they are not one kernel.
struct Boundary {
  int before, after;  // groups
  const char* why;    // a sentence
};

class Grouping {
 public:
  Grouping(const Graph& graph, const Roles& roles, const ScheduleOptions& options);

  const std::vector<Group>& groups() const { return groups_; }
  // By node: its group, -1 if it has none.
  int group_of(NodeId node) const { return group_of_[node]; }

  // What a node reads as part of a kernel of this domain, at its place there.
  const std::vector<Read>& reads(NodeId node, const Domain& domain) const;

  std::vector<Boundary> boundaries() const;

  // What runs: groups and nodes by themselves, in an order that respects what they read.
  std::vector<Unit> order() const;

 private:
  using UnitId = int;
  using Ancestors = std::vector<uint64_t>;

  std::vector<NodeId> wanted_at(const std::vector<std::vector<UnitId>>& next) const;
  void add_call(NodeId node);
  void add_to_group(NodeId node);
  void start_group(NodeId node);
  bool is_update(int group) const { return roles_.role[groups_[group].nodes[0]] == Role::update; }
  bool runs_on_device_of(int group, NodeId node) const {
    return roles_.run_together(graph_, groups_[group].nodes[0], node);
  }
  // These three answer nullptr if nothing is against it, else a sentence.
  const char* against_joining(NodeId node, int group, const std::optional<Domain>& domain) const;
  const char* try_join(NodeId node, int group);
  const char* try_merge(int into, int from);
  bool reads_own_places(const std::vector<Read>& reads, int group, const Domain& domain) const;
  std::optional<Domain> joined_domain(NodeId node, const Group& group) const;
  bool fits(int group, const Domain& domain) const;
  bool transposes(NodeId node) const;
  bool has_transposed(const Group& group) const;
  bool is_read_by(const std::vector<Read>& reads, int group) const;
  bool is_little_beside(ValueId read, NodeId node) const;
  bool waits_behind(NodeId reader, UnitId unit) const;
  bool is_wanted_behind(NodeId node, int group) const;
  bool worth_a_row(NodeId node, int group, const Domain& domain) const;
  bool in_first_pass(NodeId node, int group, const Domain& domain) const;

  // The units behind a node's arguments.
  std::vector<UnitId> dependencies(NodeId node) const;
  void depend(UnitId unit, UnitId on);
  bool depends(UnitId unit, UnitId on) const;
  UnitId new_unit(NodeId first);

  const Graph& graph_;
  const Roles& roles_;
  const ScheduleOptions& options_;
  std::vector<Group> groups_;
  std::vector<int> group_of_;         // by node
  std::vector<UnitId> unit_of_node_;  // by node; -1: only looked through
  std::vector<UnitId> unit_of_group_;
  struct UnitState {
    NodeId first = -1;  // the node it began with
    int group = -1;
    bool gone = false;  // merged into another
    Ancestors ancestors;
  };
  std::vector<UnitState> units_;
  UnitId barrier_ = -1;                           // the effect last seen
  std::vector<std::vector<int>> groups_reading_;  // by value
  std::vector<Boundary> boundaries_;              // some of groups that were merged later
  struct KnownReads {
    Domain domain;
    std::vector<Read> reads;
    bool known = false;
  };
  mutable std::vector<KnownReads> known_reads_;  // by node, of the domain last asked for
};

}  // namespace smelt
