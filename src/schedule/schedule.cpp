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

Schedule write_schedule(const Graph& graph, const ScheduleOptions& options,
                        const Refused& refused) {
  Roles roles(graph, options, refused);
  const Grouping grouping(graph, roles, options);
  const std::vector<Unit> order = grouping.order();
  const std::vector<bool> stored = stored_values(graph, roles, grouping, order);

  Schedule schedule;
  schedule.refusals = std::move(roles.refusals);
  std::vector<int32_t> kernel_of(grouping.groups().size(), -1);
  for (const Unit& unit : order) {
    if (unit.node >= 0) {
      schedule.order.push_back(unit);
      continue;
    }
    kernel_of[unit.kernel] = static_cast<int32_t>(schedule.kernels.size());
    schedule.order.push_back({.kernel = kernel_of[unit.kernel]});
    const NodeId first = grouping.groups()[unit.kernel].nodes[0];
    schedule.kernels.push_back(roles.role[first] == Role::update
                                   ? write_update(graph, roles, first, options.any_order)
                                   : write_kernel(graph, roles, grouping, unit.kernel, stored));
    schedule.kernels.back().backend = roles.backend[first];
    schedule.kernels.back().device = graph.type(graph.nodes[first].results[0]).device;
  }
  for (const Boundary& one : grouping.boundaries())
    schedule.boundaries.push_back({kernel_of[one.before], kernel_of[one.after], one.why});
  return schedule;
}

// Asks the back ends. Is one not able to compile its kernel?
bool find_refused(const Schedule& schedule, Refused& refused) {
  bool any = false;
  for (const ScheduledKernel& scheduled : schedule.kernels) {
    const Decision decision = scheduled.backend->can_compile(scheduled.kernel);
    if (decision) continue;
    any = true;
    if (scheduled.nodes.size() > 1)
      refused.together.insert(scheduled.nodes.begin(), scheduled.nodes.end());
    else
      refused.at_all.emplace(scheduled.nodes[0], decision.reason());
  }
  return any;
}

}  // namespace

Schedule make_schedule(const Graph& graph, const ScheduleOptions& options, Record& record) {
  const auto start = std::chrono::steady_clock::now();
  Refused refused;  // more with each round
  Schedule schedule = write_schedule(graph, options, refused);
  while (find_refused(schedule, refused)) schedule = write_schedule(graph, options, refused);
  size_t fused = 0;
  for (const ScheduledKernel& scheduled : schedule.kernels) fused += scheduled.nodes.size();
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
  for (const KernelBoundary& one : boundaries)
    text += "# " + kernels[one.before].kernel.name + " and " + kernels[one.after].kernel.name +
            " are two kernels: " + one.why + "\n";
  return text;
}

}  // namespace smelt
