#include "bridge/choose_program.h"

#include <ATen/Context.h>

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "aten/convert.h"
#include "bridge/autograd/consumed_node.h"
#include "bridge/autograd/tracked_inputs.h"
#include "bridge/autograd/tracked_outputs.h"
#include "bridge/background_program.h"
#include "bridge/graph_program.h"
#include "bridge/machine/linked_program.h"
#include "bridge/preparation.h"
#include "bridge/record_joint.h"
#include "bridge/recorded_graph.h"
#include "bridge/staged_program.h"
#include "bridge/training_program.h"
#include "diagnostics/counters.h"
#include "log/own_ops.h"
#include "log/trainability.h"
#include "log/writes.h"
#include "ops/facts.h"

namespace smelt {
namespace {

// What is copied into tensors of the caller is few elements: more costs more than an op. Beside
// what a CUDA graph saves, a copy on the device is little.
constexpr int64_t kFewElements = 4096;
constexpr int64_t kFewOnCuda = 1 << 20;

int64_t few_elements(const CompileOptions& options, const CallLog& log) {
  if (options.cuda_graphs == GraphUse::never) return kFewElements;
  for (const LoggedValue& value : log.values)
    if (value.kind == LoggedValue::Kind::input && value.type && value.type->device.is_cuda())
      return kFewOnCuda;
  return kFewElements;
}

// Which of the two to run. With generated kernels the graph. They store what is written to tensors
// of the caller in place; where that can't be done it is computed into new memory and copied, which
// loses against the ops as they are.
//
// Without, both call PyTorch's kernels one by one. A step of a graph
// costs about as much as an op of a log. Where PyTorch composes an op of others, the graph has
// several steps for it, but the log goes through those too, with autograd's part on top; and passes
// remove what is computed twice. Microseconds per run on small tensors, log and graph, on a busy
// machine where less than a tenth means nothing: 30 additions 23, 22; 30 relus 20, 21; six linear
// layers with relu 18, 15; three einsums 24, 4.5. In-place code is the exception (37, 39 for 30
// ops, and more on large tensors).
Decision graph_is_faster(const OpLog& log, const LogProgram& program, int64_t few) {
  const bool kernels = !native_backends().empty();
  if (!program.writes()) return Decision::allow();
  const bool outside = std::ranges::any_of(
      log.plain().calls, [&](const LoggedCall& call) { return log.changes_input(call); });
  if (!kernels) return Decision::forbid("in-place ops are fastest as they are");
  return !outside || writes_whole_tensors(log.plain(), few)
             ? Decision::allow()
             : Decision::forbid("parts of tensors are changed in place");
}

bool makes_native_kernels(const CompileOptions& options) {
  return std::ranges::any_of(options.schedule.backends,
                             [](const Backend* backend) { return backend->is_native(); });
}

// Likewise, when it is known what is copied.
Decision graph_is_faster(const Program& program, int64_t few) {
  std::unordered_set<Register> stored;
  for (const Step& step : program.steps) stored.insert(step.into.begin(), step.into.end());
  for (const Step& step : program.steps) {
    if (step.op != "smelt::write" || stored.contains(step.args[0].get<Ref>().id)) continue;
    if (step.types[0].numel().as_known().value_or(few + 1) > few)
      return Decision::forbid("what it changes in place would be copied");
  }
  return Decision::allow();
}

// By requires_grad_(): a backward pass ends there, and leaves its gradient with the output.
bool is_leaf(const OpLog& log, LogValue output) {
  if (!log.plain().is_tracked(output)) return false;
  const at::Tensor tensor = log.tensor(output);
  return tensor.defined() && !tensor.grad_fn();
}

// Is there an output that a backward pass may start from?
bool leaves_graph(const OpLog& log, std::span<const LogValue> outputs) {
  bool tracked = false;
  for (LogValue output : outputs) {
    if (is_leaf(log, output)) return false;
    tracked = tracked || log.plain().is_tracked(output);
  }
  return tracked;
}

bool has_hooks(const OpLog& log, std::span<const LogValue> inputs) {
  return std::ranges::any_of(inputs, [&](LogValue input) { return is_hooked(log.tensor(input)); });
}

// Who makes kernels for such a program.
std::vector<const Backend*> backends_of(WantedProgram want) {
  if (want == WantedProgram::interpreted) return reference_backends();
  if (want == WantedProgram::fastest) return native_backends();
  return {};
}

// A program without generated kernels is op by op what the log is, with more around it.
Decision can_train(const CallLog& log, std::span<const LogValue> inputs,
                   std::span<const LogValue> outputs, WantedProgram want) {
  const std::vector<const Backend*> backends = backends_of(want);
  if (backends.empty()) return Decision::forbid("its results take part in autograd");
  for (const LogValue input : inputs)
    if (const auto& type = log.value(input).type; type && !backend_for(backends, type->device))
      return Decision::forbid("its results take part in autograd, and no kernels are made for " +
                              type->device.str());
  return smelt::can_train(log, inputs, outputs);
}

bool share_memory(const CallLog& log, std::span<const LogValue> outputs) {
  std::vector<int32_t> seen;
  for (LogValue output : outputs) {
    if (output < 0 || log.value(output).kind == LoggedValue::Kind::input) continue;
    const int32_t memory = log.value(output).memory;
    if (std::find(seen.begin(), seen.end(), memory) != seen.end()) return true;
    seen.push_back(memory);
  }
  return false;
}

// Without autograd: nothing that a stage before the last would have to take back.
bool can_be_parted(const LogProgram& log, bool gives_no_numbers) {
  return !log.writes() && !log.has_grads() && gives_no_numbers && log.computes_without_numbers();
}

// Is an output changed in place behind its retain_grad()? Which gradient it keeps then is left to
// PyTorch.
bool changes_retained(const CallLog& log, std::span<const LogValue> outputs) {
  std::vector<int32_t> retained;  // memories
  for (const LoggedCall& call : log.calls) {
    for (LogValue written : call.written)
      if (std::ranges::find(retained, log.value(written).memory) != retained.end()) return true;
    if (call.op != own_ops::kRetainGrad) continue;
    each_argument(call, [&](LogValue value) {
      if (std::ranges::find(outputs, value) != outputs.end())
        retained.push_back(log.value(value).memory);
    });
  }
  return false;
}

// Of few ops around those that no graph takes no stage is worth it.
Decision is_worth_parting(const LogProgram& log, const std::vector<CalledRange>& called) {
  constexpr size_t kFewOps = 4;
  size_t inside = 0, all = 0;
  for (size_t i = 0; i < log.live().size(); ++i) {
    if (!log.live()[i]) continue;
    ++all;
    inside += std::ranges::any_of(
        called, [i](const CalledRange& range) { return range.first <= i && i < range.end; });
  }
  if (all - inside >= kFewOps) return Decision::allow();
  return Decision::forbid("it calls autograd or Python code, or has shapes that contents decide");
}

bool has_effects(const CallLog& log) {
  return std::ranges::any_of(log.calls, &LoggedCall::has_effects);
}

// By requires_grad_() where no op has a gradient: a graph of such ops would not know.
bool gives_leaf(const CallLog& log, std::span<const LogValue> outputs) {
  return std::ranges::any_of(outputs, [&](LogValue output) { return log.is_tracked(output); });
}

// A graph with a backward pass in it knows nothing of autograd. What it returns must not be
// something that a further pass could start from.
Decision can_step(const OpLog& log, const LogProgram& program, std::span<const LogValue> inputs,
                  std::span<const LogValue> outputs) {
  if (torch::autograd::AnomalyMode::is_enabled())
    return Decision::forbid("anomaly mode names the ops of a backward pass");
  for (LogValue input : inputs)
    if (const at::Tensor tensor = log.tensor(input);
        tensor.defined() && program.has_backward() && !tensor.is_leaf())
      return Decision::forbid("a backward pass goes on in what was computed before");
  for (LogValue output : outputs) {
    if (output < 0 || log.plain().value(output).kind == LoggedValue::Kind::input) continue;
    const LoggedValue& value = log.plain().value(output);
    if (log.is_input_memory(value.memory))
      return Decision::forbid("an output of a step shows an input's memory");
    if (value.retains_grad) return Decision::forbid("an output of a step has a gradient");
    // Hooks are not called to try it.
    if (value.requires_grad &&
        !(log.is_consumed(output) && (program.has_hooks() || is_used_up(log.tensor(output)))))
      return Decision::forbid("an output requires a gradient that the step does not compute");
  }
  return Decision::allow();
}

// `calls_apart`: what no graph takes is called between stages.
Decision can_record(const OpLog& log, const LogProgram& program, std::span<const LogValue> inputs,
                    bool calls_apart) {
  const CallLog& plain = log.plain();
  for (size_t i = 0; i < plain.calls.size(); ++i) {
    const LoggedCall& call = plain.calls[i];
    const bool is_known = call.registers_hook || log.real_calls()[i].function;
    if (call.op == own_ops::kOpaqueCall && !(calls_apart && call.calls_back) &&
        !(program.has_backward() && is_known))
      return Decision::forbid("it calls autograd or Python code");
  }
  for (const LoggedCall& call : plain.calls)
    if (facts_of(call.op).detaches && log.changes_input(call))
      return Decision::forbid("a tensor of the caller is detached in place");
  for (const LoggedCall& call : plain.calls)
    if (plain.ambients[call.ambient].inference != plain.ambients[0].inference)
      return Decision::forbid("inference mode is switched inside");
  for (LogValue input : inputs) {
    const at::Tensor tensor = log.tensor(input);
    if (!tensor.defined()) return Decision::forbid("an input is gone");
    const std::optional<TensorType>& then = plain.value(input).type;
    if (!then) return Decision::forbid("no graph takes an input of its type");
    if (tensor.layout() != c10::kStrided || to_sizes(tensor.sizes()) != then->sizes ||
        to_sizes(tensor.strides()) != then->strides ||
        to_dtype(tensor.scalar_type()) != then->dtype)
      return Decision::forbid("the type of an input is changed");
  }
  return Decision::allow();
}

// A graph that is recorded, and what it takes to make a program of it.
struct Uncompiled {
  Recorded recorded;
  CompileOptions options;
  std::vector<size_t> consumed;  // as GraphProgram takes them
  std::optional<int64_t> few;    // as graph_is_faster() takes it; nothing: it is not asked
};

// The log is taken where there is a program in the end.
Decision compile_graph(Uncompiled graph, LogProgram& log,
                       std::shared_ptr<const TracedProgram>& made) {
  RecordedGraph compiled(std::make_shared<const RecordedGraph::Impl>(std::move(graph.recorded),
                                                                     std::move(graph.options)));
  if (graph.few)
    if (const Decision decision = graph_is_faster(compiled.impl().program->program(), *graph.few);
        !decision) {
      compiled.impl().count_ops(-1);
      count(Counter::graphs, -1);
      return decision;
    }
  made = std::make_shared<const GraphProgram>(std::move(log), std::move(compiled),
                                              std::move(graph.consumed));
  return Decision::allow();
}

// What stands for and against each kind of program, for one log.
class Chooser {
 public:
  Chooser(const OpLog& log, const LogProgram::Interface& interface, WantedProgram want,
          const CompileOptions& options, bool is_stage)
      : log_(log),
        plain_(log.plain()),
        interface_(interface),
        inputs_(interface.inputs),
        outputs_(interface.outputs),
        want_(want),
        options_(options),
        is_stage_(is_stage),
        program_(log, interface) {
    if (!is_stage) program_.keep_reach(examples());
  }

  std::shared_ptr<const TracedProgram> choose() {
    std::string refusal;
    if (program_.ops() > 0) {
      std::shared_ptr<const TracedProgram> made;
      if (want_ != WantedProgram::op_by_op)
        if (const Decision decision = compile(made); !decision) refusal = decision.reason();
      if (made) return made;  // whoever made it has counted it
      count(Counter::graphs);
      count(Counter::ops_fallback, static_cast<int64_t>(program_.ops()));
    }
    return std::make_shared<const OpByOpProgram>(std::move(program_), std::move(refusal));
  }

 private:
  Decision compile(std::shared_ptr<const TracedProgram>& made) {
    // zero_grad() before a forward whose backward comes later. Hooks see in which order gradients
    // come, which one node for all of them does not keep.
    clears_only_ =
        program_.clears_only() && leaves_graph(log_, outputs_) && !has_hooks(log_, inputs_);
    tracked_ = program_.uses_autograd() && (!program_.has_grads() || clears_only_);
    if (!is_stage_ && !program_.has_grads() && !program_.has_backward())
      called_ = find_called(plain_, program_.live());
    shares_ = share_memory(plain_, outputs_);
    if (const Decision decision = can_compile(); !decision) return decision;
    StageStarts stages;
    if ((tracked_ || shares_ || !called_.empty()) && !is_stage_)
      stages =
          find_stages(plain_, program_.live(), outputs_, tracked_outputs(log_, outputs_), called_);
    if (!stages.possible) return stages.possible;
    try {
      if (!stages.positions.empty() || !stages.called.empty())
        made = std::make_shared<const StagedProgram>(log_, program_, interface_, stages, want_,
                                                     options_);
      else if (tracked_)
        record_training(made);
      else
        return record(made);
    } catch (const std::exception& error) {
      return Decision::forbid(error.what());
    }
    return Decision::allow();
  }

  Decision can_compile() const {
    const bool counts = interface_.sizes != nullptr && interface_.sizes->any_late();
    if (counts && called_.empty())
      return Decision::forbid("sizes that contents decide, in a step or in part of one");
    const bool reads_no_numbers =
        counts || (interface_.wanted_numbers.empty() && program_.computes_without_numbers());
    // PyTorch must know such outputs as views of each other: by stages, if they can be made so.
    if (shares_ &&
        (is_stage_ || (!tracked_ && !can_be_parted(program_, interface_.wanted_numbers.empty()))))
      return Decision::forbid("two outputs share memory");
    if (has_effects(plain_) && called_.empty())  // part of a step, or left in a stage of no graph
      return Decision::forbid("an op may have effects");
    if (const Decision decision = can_record(log_, program_, inputs_, !called_.empty()); !decision)
      return decision;
    if (!called_.empty()) {
      if (const Decision decision = is_worth_parting(program_, called_); !decision) return decision;
      if (!reads_no_numbers)
        return Decision::forbid("numbers are read, and some of its ops no graph takes");
    }
    if (changes_retained(plain_, outputs_))
      return Decision::forbid("an output is changed behind its retain_grad()");
    return tracked_ ? can_take_part_in_autograd(reads_no_numbers) : can_do_without_autograd();
  }

  Decision can_take_part_in_autograd(bool reads_no_numbers) const {
    if (const Decision decision = can_train(plain_, inputs_, outputs_, want_); !decision)
      return decision;
    if (std::ranges::any_of(outputs_, [&](LogValue output) { return is_leaf(log_, output); }))
      return Decision::forbid("a result is a leaf that requires a gradient");
    // A graph, to which all inputs are leaves, knows no way from one of them to another.
    const ReachBehind reach = reach_behind(examples(), program_.asked());
    if (std::ranges::find(reach.known, true) != reach.known.end())
      return Decision::forbid("a gradient of what an input was computed of");
    return reads_no_numbers
               ? Decision::allow()
               : Decision::forbid("its results take part in autograd, and a number is read");
  }

  Decision can_do_without_autograd() const {
    if (program_.has_grads()) {
      if (const Decision decision = can_step(log_, program_, inputs_, outputs_); !decision)
        return decision;
    } else if (gives_leaf(plain_, outputs_)) {
      return Decision::forbid("a result is a leaf that requires a gradient");
    }
    if (want_ != WantedProgram::fastest || program_.has_backward()) return Decision::allow();
    return graph_is_faster(log_, program_, few_elements(options_, plain_));
  }

  CompileOptions kernel_options() const {
    CompileOptions options = options_;
    options.schedule.backends = backends_of(want_);
    options.has_symbol_values = true;
    const bool is_deterministic = at::globalContext().deterministicAlgorithms();
    options.schedule.any_order = !is_deterministic;
    if (is_deterministic) options.specialize = 0;  // the clock would choose between two programs
    // The trace has computed its call. Most that is traced once and never runs again costs no code.
    options.kernels.later = !options_.background;
    if (tracked_ || program_.has_grads()) options.frozen.clear();  // an optimizer changes weights
    return options;
  }

  std::vector<at::Tensor> examples() const {
    std::vector<at::Tensor> examples;
    for (LogValue input : inputs_) examples.push_back(log_.tensor(input));
    return examples;
  }

  // Recorded now; what it is made into is decided by whoever compiles it.
  Decision record(std::shared_ptr<const TracedProgram>& made) {
    CompileOptions options = kernel_options();
    const std::vector<at::Tensor> examples = this->examples();
    Uncompiled graph;
    if (program_.has_grads()) {
      for (size_t i = 0; i < outputs_.size(); ++i)
        if (plain_.is_tracked(outputs_[i])) graph.consumed.push_back(i);
      graph.recorded = record_step(program_, examples);
    } else {
      const auto replay = [&](const std::vector<at::Tensor>& twins) {
        return program_.replay(twins, program_.add_numbers(*Recorder::current()));  // arguments too
      };
      // Changes of an inference tensor are not counted, and could not be noticed; nor could those
      // that ops make silently on another device.
      for (size_t i = 0; i < options.frozen.size(); ++i)
        if (examples[i].is_inference() || !can_watch(examples[i])) options.frozen[i] = false;
      graph.recorded = record_sized(replay, examples, program_.sizes());
      if (makes_native_kernels(options)) graph.few = few_elements(options, plain_);
    }
    graph.options = std::move(options);
    if (!options_.background) return compile_graph(std::move(graph), program_, made);
    std::vector<Guard> guards = graph.recorded.graph.symbols.guards();
    const auto kept = std::make_shared<Uncompiled>(std::move(graph));
    const auto log = std::make_shared<LogProgram>(program_);
    made = std::make_shared<const BackgroundProgram>(
        std::move(program_), std::move(guards),
        [kept, log](std::shared_ptr<const TracedProgram>& done) {
          return compile_graph(std::move(*kept), *log, done);
        });
    return Decision::allow();
  }

  // With a forward and a backward.
  void record_training(std::shared_ptr<const TracedProgram>& made) {
    auto training = std::make_shared<TrainingProgram>(log_, program_, inputs_, outputs_,
                                                      kernel_options(), clears_only_);
    if (!options_.background) {
      training->compile();
      made = std::move(training);
      return;
    }
    made = std::make_shared<const BackgroundProgram>(
        program_, training->recorded_guards(),
        [training](std::shared_ptr<const TracedProgram>& done) {
          training->compile();
          done = training;
          return Decision::allow();
        });
  }

  const OpLog& log_;
  const CallLog& plain_;
  const LogProgram::Interface& interface_;
  const std::span<const LogValue> inputs_, outputs_;
  const WantedProgram want_;
  const CompileOptions& options_;
  const bool is_stage_;
  LogProgram program_;
  bool clears_only_ = false;         // gradients, before a forward that takes part in autograd
  bool tracked_ = false;             // its results take part in autograd
  bool shares_ = false;              // two outputs share memory
  std::vector<CalledRange> called_;  // what no graph takes
};

}  // namespace

std::shared_ptr<const TracedProgram> choose_program(const OpLog& log,
                                                    const LogProgram::Interface& interface,
                                                    WantedProgram want,
                                                    const CompileOptions& options, bool is_stage) {
  return Chooser(log, interface, want, options, is_stage).choose();
}

}  // namespace smelt
