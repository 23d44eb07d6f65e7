// What the schedule may do with each node.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "ops/meaning.h"
#include "schedule/schedule.h"

namespace smelt {

enum class Role : uint8_t {
  call,       // runs by itself, through the dispatcher or as an effect
  view,       // only another way to look at memory; kernels look through it
  inlined,    // computed by each kernel that reads it
  element,    // part of a kernel, element by element
  reduction,  // part of a kernel
  scan,       // part of a kernel whose inner dimension it runs along
  update,     // a kernel of its own
};

// What back ends have said of kernels that they were shown.
struct Refused {
  std::set<NodeId> together;             // computed with others: each gets a kernel of its own
  std::map<NodeId, std::string> at_all;  // computed alone: they are called
};

struct Roles {
  Roles(const Graph& graph, const ScheduleOptions& options, const Refused& refused);

  bool in_kernel(NodeId node) const { return node >= 0 && role[node] >= Role::element; }
  // Looked through by kernels: where does the value come from?
  bool is_transparent(NodeId node) const {
    return node >= 0 &&
           (role[node] == Role::inlined || (role[node] == Role::view && looks_through[node]));
  }

  // May one kernel hold both: has it one back end, and one device?
  bool run_together(const Graph& graph, NodeId a, NodeId b) const;
  // May a kernel that computes the node report failure?
  bool may_fail(const Graph& graph, NodeId node) const;
  // What an update's result begins as; -1: zeros, or the node is no update.
  ValueId base_of(const Graph& graph, NodeId node) const;
  // Does the node take this value as a tensor, not element by element?
  bool takes_tensor(const Graph& graph, NodeId node, ValueId value) const {
    return role[node] == Role::call || base_of(graph, node) == value;
  }
  // Does anybody need this view's result as a tensor? Kernels read what it shows.
  bool is_tensor(const Graph& graph, ValueId view) const;
  bool read_by_kernels(const Graph& graph, ValueId value, int in_part) const;
  bool read_once_elsewhere(const Graph& graph, ValueId value, int in_part) const;

  // All by node.
  std::vector<Role> role;
  std::vector<const Backend*> backend;  // of what is part of a kernel: who makes it
  std::vector<const Meaning*> meaning;
  std::vector<std::optional<ReductionForm>> form;  // of reductions and scans
  std::vector<std::optional<UpdateForm>> update;   // of updates
  // A view of something that a kernel computes: the kernel may be the reader's own.
  std::vector<bool> looks_through;
  // Effects part the graph: a node computes in its own part only. So do late nodes.
  std::vector<int> part;
  std::vector<bool> late;   // runs after all others of its part (late.h)
  std::vector<bool> alone;  // shares no kernel
  // By value: the value whose memory kernels read for it, and the nodes that read it.
  std::vector<ValueId> root;
  std::vector<std::vector<NodeId>> readers;
  std::vector<bool> is_output;
  std::vector<std::string> refusals;  // why nodes are called, each sentence once

 private:
  void choose_inlined(const Graph& graph);
  void inline_widened(const Graph& graph);
  int full_readers(const Graph& graph, ValueId value) const;
  bool is_concatenated(const Graph& graph, ValueId value) const;
  bool read_by_update(const Graph& graph, NodeId node) const;
};

}  // namespace smelt
