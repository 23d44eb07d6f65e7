// One step per unit of the schedule. What is decided here is how long a tensor lives: a register is
// released after the last step that reads it and given to a later result, so that memory goes back
// as early as in eager code that drops its variables at once. A view keeps its storage alive by
// itself (the Machine's tensors are counted), so a chain of views needs no care. Kernels that are
// launched together release what they read together.

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <unordered_map>

#include "base/error.h"
#include "compile/arena.h"
#include "compile/batches.h"
#include "compile/compile.h"
#include "compile/in_place.h"
#include "compile/peak_memory.h"
#include "compile/reuse.h"
#include "diagnostics/log.h"
#include "graph/alias.h"
#include "ops/default_float.h"
#include "ops/in_place_form.h"
#include "passes/rewriting/ownership.h"

namespace smelt {
namespace {

constexpr int kForever = std::numeric_limits<int>::max();

static_assert(static_cast<int>(Source::argument) == 0 && static_cast<int>(Source::captured) == 1 &&
              static_cast<int>(Source::grad) == 2);  // as Program::str names them

// What a unit of the schedule reads and makes.
struct Access {
  std::vector<ValueId> reads, makes;
};

Access access_of(const Graph& graph, const Schedule& schedule, const Unit& unit) {
  Access access;
  if (unit.node >= 0) {
    const Node& node = graph.nodes[unit.node];
    for (const Arg& arg : node.args)
      each_ref(arg, [&](Ref ref) { access.reads.push_back(ref.id); });
    access.makes = node.results;
    return access;
  }
  const ScheduledKernel& scheduled = schedule.kernels[unit.kernel];
  for (size_t i = 0; i < scheduled.buffers.size(); ++i) {
    const ValueId value = scheduled.buffers[i];
    if (value < 0) continue;
    const bool read = scheduled.kernel.buffers[i].kind == loops::Buffer::Kind::input;
    (read ? access.reads : access.makes).push_back(value);
    if (scheduled.bases[i] >= 0) access.reads.push_back(scheduled.bases[i]);
  }
  for (const ValueId number : scheduled.params) access.reads.push_back(number);
  return access;
}

// By value: the position of the last unit that reads it, -1 if none does, kForever for what
// outlives the steps.
std::vector<int> last_readers(const Graph& graph, const std::vector<Access>& accesses,
                              bool release_inputs) {
  std::vector<int> last(graph.values.size(), -1);
  for (size_t i = 0; i < accesses.size(); ++i)
    for (ValueId value : accesses[i].reads) last[value] = static_cast<int>(i);
  if (!release_inputs)
    for (const Input& input : graph.inputs) last[input.value] = kForever;
  for (const Constant& constant : graph.constants) last[constant.value] = kForever;
  for (ValueId output : graph.outputs) {
    if (output >= 0) last[output] = kForever;
  }
  return last;
}

SymbolBinding bind(const Graph& graph, int symbol) {
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Sizes& sizes = graph.type(graph.inputs[i].value).sizes;
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      if (sizes[dim].as_symbol() == symbol) {
        return {.input = static_cast<int32_t>(i), .dim = static_cast<int32_t>(dim)};
      }
    }
  }
  const Symbol& which = graph.symbols.symbols()[symbol];
  throw Error(
      "the size s" + std::to_string(symbol) +
      (which.name.empty() ? "" : " ('" + which.name + "')") + ", which was " +
      std::to_string(which.hint) +
      " when the graph was recorded, is not the size of any input in a dimension of its own, "
      "so its value is not known when the program starts; record with that size fixed");
}

class Lowering {
 public:
  Lowering(const Graph& graph, const Schedule& schedule, const LowerOptions& options)
      : graph_(graph),
        schedule_(schedule),
        has_symbol_values_(options.has_symbol_values),
        in_place_(stored_in_place(graph, schedule)),
        batch_ends_(batch_ends(graph, schedule, in_place_)),
        visible_(visible_views(graph)),
        register_of_(graph.values.size(), -1) {
    for (const Unit& unit : schedule.order) accesses_.push_back(access_of(graph, schedule, unit));
    last_reader_ = last_readers(graph, accesses_, options.release_inputs);
  }

  Program run(std::vector<KernelImage> kernels) {
    program_.kernels = std::move(kernels);
    program_.symbols = graph_.symbols;
    program_.symbols.set_locator(nullptr);  // of the recorder, which the program outlives
    for (size_t i = 0; i < graph_.symbols.symbols().size(); ++i) {
      program_.bindings.push_back(has_symbol_values_ ? SymbolBinding()
                                                     : bind(graph_, static_cast<int>(i)));
    }
    for (const Input& input : graph_.inputs) {
      program_.inputs.push_back({.reg = take(input.value),
                                 .source = static_cast<uint8_t>(input.source),
                                 .index = input.index,
                                 .type = graph_.type(input.value)});
    }
    for (const Constant& constant : graph_.constants) {
      program_.constants.push_back(
          {.reg = take(constant.value), .data = constant.data, .digest = constant.digest});
    }
    for (size_t i = 0; i < schedule_.order.size(); ++i) add_step(static_cast<int>(i));
    for (const ValueId output : graph_.outputs) {
      program_.outputs.push_back(output < 0 ? -1 : register_of_[output]);
    }
    return std::move(program_);
  }

 private:
  // A register for a value: the lowest that is free.
  Register take(ValueId value) {
    Register reg = program_.registers;
    if (free_.empty()) {
      ++program_.registers;
    } else {
      reg = free_.top();
      free_.pop();
    }
    return register_of_[value] = reg;
  }

  void add_step(int position) {
    const Unit& unit = schedule_.order[position];
    Step step;
    if (unit.node >= 0) {
      const Node& node = graph_.nodes[unit.node];
      step.op = node.op.str();
      if (asks_default_float(graph_, node)) program_.asks_default_float = step.op;
      step.args = node.args;
      step.visible = visible_[unit.node];
      step.grad = node.traits.grad;
      step.view_offset = step.visible ? std::nullopt : view_offset(node);
    } else {
      step.op = schedule_.kernels[unit.kernel].kernel.name;
      step.kernel = unit.kernel;
      for (ValueId value : accesses_[position].reads) step.args.emplace_back(Ref{value});
    }
    // Results first: a step reads its arguments while it writes them.
    for (const ValueId result : accesses_[position].makes) {
      const bool read = result >= 0 && (unit.kernel >= 0 || last_reader_[result] >= 0);
      step.results.push_back(read ? take(result) : -1);
      step.types.push_back(result >= 0 ? graph_.type(result) : TensorType());
    }
    if (position == 0 || batch_ends_[position - 1] < position) count_readers(position);
    if (unit.kernel >= 0)
      plan_memory(position, step);
    else
      plan_in_place(position, step);
    for (Arg& arg : step.args) {
      each_ref(arg, [&](Ref& ref) {
        const ValueId value = ref.id;
        ref.id = register_of_[value];
        SMELT_CHECK(ref.id >= 0, "a step reads %" + std::to_string(value) + ", which none makes");
        if (last_reader_[value] != position) return;
        last_reader_[value] = kForever;  // released once, however often the step reads it
        released_.push_back(ref.id);
      });
    }
    step.with_next = batch_ends_[position] != position;
    if (!step.with_next) step.release = std::exchange(released_, {});
    for (const Register reg : step.release) free_.push(reg);
    program_.steps.push_back(std::move(step));
  }

  static int refs_in(const Node& node) {
    int count = 0;
    for (const Arg& arg : node.args) each_ref(arg, [&](Ref) { ++count; });
    return count;
  }

  std::optional<Size> view_offset(const Node& node) const {
    if (!node.traits.view || !node.traits.is_pure() || node.results.size() != 1)
      return std::nullopt;
    const ValueId shown = viewed(node);
    const TensorType& from = graph_.type(shown);
    const TensorType& to = graph_.type(node.results[0]);
    if (from.dtype != to.dtype || from.conj != to.conj || from.neg != to.neg) return std::nullopt;
    if (refs_in(node) != 1) return std::nullopt;
    return to.offset - from.offset;
  }

  // By value, how many kernels of the batch that begins here read it: they run at the same time.
  void count_readers(int first) {
    batch_readers_.clear();
    for (int i = first; i <= batch_ends_[first]; ++i)
      for (const ValueId value : accesses_[i].reads) ++batch_readers_[value];
  }

  void plan_memory(int position, Step& step) {
    const ScheduledKernel& scheduled = schedule_.kernels[step.kernel];
    for (const ValueId result : accesses_[position].makes)
      step.into.push_back(in_place_[result] < 0 ? -1 : register_of_[in_place_[result]]);
    const auto dies = [&](ValueId value) {
      return last_reader_[value] == position && batch_readers_[value] == 1;
    };
    std::vector<bool> placed;
    for (ValueId value : scheduled.buffers) placed.push_back(value >= 0 && in_place_[value] >= 0);
    for (const ValueId value : reusable_values(graph_, scheduled, dies, placed))
      step.reuse.push_back(value < 0 ? -1 : register_of_[value]);
  }

  // A call that can work in the memory of an argument does so if that dies here.
  void plan_in_place(int position, Step& step) const {
    const InPlaceForm* form = find_in_place_form(graph_.nodes[schedule_.order[position].node].op);
    if (!form) return;
    const ValueId taken = step.args[form->argument].get<Ref>().id;
    if (last_reader_[taken] != position || std::ranges::count(accesses_[position].reads, taken) > 1)
      return;
    step.reuse = {register_of_[taken]};
    step.in_place_op = form->op.str();
    step.taken = form->argument;
  }

  const Graph& graph_;
  const Schedule& schedule_;
  const bool has_symbol_values_;
  std::vector<Access> accesses_;  // by position in the schedule
  std::vector<int> last_reader_;
  std::vector<ValueId> in_place_;  // by value: the input it is stored into, or -1
  std::vector<int> batch_ends_;    // by position
  std::unordered_map<ValueId, int> batch_readers_;
  std::vector<Register> released_;  // in the batch so far
  std::vector<bool> visible_;
  std::vector<Register> register_of_;
  std::priority_queue<Register, std::vector<Register>, std::greater<>> free_;
  Program program_;
};

}  // namespace

Program lower(const Graph& graph, LowerOptions options) {
  Schedule schedule;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    schedule.order.push_back({.node = static_cast<NodeId>(i)});
  return lower(graph, schedule, {}, options);
}

Program lower(const Graph& graph, const Schedule& schedule, std::vector<KernelImage> kernels,
              LowerOptions options) {
  Program program = Lowering(graph, schedule, options).run(std::move(kernels));
  place_in_arena(graph, schedule, program);
  if (log_enabled(Log::memory)) log(Log::memory, describe_peak(graph, schedule, program));
  return program;
}

}  // namespace smelt
