#include "schedule/schedule.h"

#include <chrono>

#include "schedule/grouping.h"
#include "schedule/write_kernel.h"
#include "schedule/write_update.h"

namespace smelt {
namespace {

// By value: does it have to be in memory? Calls and outputs need tensors, and so does a group that
// reads another's result.
std::vector<bool> stored_values(const Graph& graph, const Roles& roles, const Grouping& grouping,
                                const std::vector<Unit>& order) {
  std::vector<bool> stored(graph.values.size());
  const auto need = [&](ValueId value) { stored[value] = stored[roles.root[value]] = true; };
  for (ValueId output : graph.outputs)
    if (output >= 0) need(output);
  for (const Unit& unit : order) {
    if (unit.node >= 0) {
      for (const Arg& arg : graph.nodes[unit.node].args)
        each_ref(arg, [&](Ref ref) { need(ref.id); });
      continue;
    }
    const Group& group = grouping.groups()[unit.kernel];
    for (NodeId node : group.nodes) {
      if (const ValueId base = roles.base_of(graph, node); base >= 0) need(base);
      for (const Read& read : grouping.reads(node, group.domain)) {
        const NodeId producer = graph.values[read.value].node;
        if (producer < 0 || grouping.group_of(producer) != unit.kernel) need(read.value);
      }
    }
  }
  return stored;
}

}  // namespace

Schedule make_schedule(const Graph& graph, const ScheduleOptions& options, Record& record) {
  const auto start = std::chrono::steady_clock::now();
  Roles roles(graph, options);
  const Grouping grouping(graph, roles, options);
  const std::vector<Unit> order = grouping.order();
  const std::vector<bool> stored = stored_values(graph, roles, grouping, order);

  Schedule schedule;
  schedule.refusals = std::move(roles.refusals);
  size_t fused = 0;
  for (const Unit& unit : order) {
    if (unit.node >= 0) {
      schedule.order.push_back(unit);
      continue;
    }
    schedule.order.push_back({.kernel = static_cast<int32_t>(schedule.kernels.size())});
    const NodeId first = grouping.groups()[unit.kernel].nodes[0];
    schedule.kernels.push_back(roles.role[first] == Role::update
                                   ? write_update(graph, roles, first)
                                   : write_kernel(graph, roles, grouping, unit.kernel, stored));
    fused += schedule.kernels.back().nodes.size();
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  record.entries.push_back(
      {.stage = "schedule",
       .name = "kernels",
       .seconds = seconds,
       .changed = !schedule.kernels.empty(),
       .note = std::to_string(fused) + " nodes in " + std::to_string(schedule.kernels.size()) +
               " kernels, " + std::to_string(schedule.order.size() - schedule.kernels.size()) +
               " calls"});
  return schedule;
}

std::string Schedule::str(const Graph& graph) const {
  std::string text;
  for (const Unit& unit : order) {
    if (unit.node >= 0) {
      text += "call " + smelt::str(graph, graph.nodes[unit.node]) + "\n";
      continue;
    }
    const ScheduledKernel& scheduled = kernels[unit.kernel];
    text += "kernel " + scheduled.kernel.name + "(";
    for (size_t i = 0; i < scheduled.buffers.size(); ++i) {
      const ValueId value = scheduled.buffers[i];
      text += (i ? ", " : "") + (value < 0 ? std::string("scratch") : "%" + std::to_string(value));
    }
    text += ")\n";
    for (NodeId node : scheduled.nodes) text += "  " + smelt::str(graph, graph.nodes[node]) + "\n";
  }
  for (const std::string& refusal : refusals) text += "# " + refusal + "\n";
  return text;
}

}  // namespace smelt
