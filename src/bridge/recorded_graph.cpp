#include "bridge/recorded_graph.h"

#include <ATen/Version.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <chrono>

#include "aten/convert.h"
#include "aten/find_op.h"
#include "aten/overlap.h"
#include "aten/stand_ins.h"
#include "base/error.h"
#include "bridge/evaluate.h"
#include "diagnostics/clock.h"
#include "diagnostics/counters.h"
#include "diagnostics/log.h"
#include "graph/effects.h"
#include "graph/known_sizes.h"
#include "graph/numbers.h"
#include "ops/facts.h"

namespace smelt {

namespace {

// By input, of which arguments are frozen.
std::vector<bool> frozen_inputs(const Graph& graph, const std::vector<bool>& arguments) {
  std::vector<bool> frozen;
  if (arguments.empty()) return frozen;
  for (const Input& input : graph.inputs)
    frozen.push_back(input.source == Source::argument &&
                     static_cast<size_t>(input.index) < arguments.size() && arguments[input.index]);
  return frozen;
}

}  // namespace

RecordedGraph::Impl::Impl(Recorded recorded, CompileOptions options)
    : graph(std::move(recorded.graph)),
      captured(std::move(recorded.captured)),
      returned_input(std::move(recorded.returned_input)),
      same_argument(std::move(recorded.same_argument)) {
  options.passes.evaluate = [&](const Graph& in, const Node& node) {
    return evaluate_node(in, node, recorded.opaque);
  };
  options.passes.has_op = has_cpu_op;
  options.passes.onednn_takes = onednn_takes;
  if (captured.empty()) options.passes.frozen = frozen_inputs(graph, options.frozen);
  const GraphUse cuda_graphs = options.cuda_graphs;
  if (options.has_symbol_values) settle_symbols(graph);
  const bool specializes = may_specialize(options);
  if (specializes) again_ = options;
  again_.kernels.later = false;
  const int64_t start = specializes ? now_ns() : 0;
  Program lowered = compile(graph, std::move(options), record);
  const int64_t spent = specializes ? now_ns() - start : 0;
  for (const Step& step : lowered.steps)
    calls_ += step.kernel < 0 && !numbers::is_number_op(OpName(step.op)) &&
              OpName(step.op) != numbers::kDraw;
  on_numbers_ = std::ranges::count_if(
      graph.nodes, [](const Node& node) { return numbers::is_number_op(node.op); });
  count_ops(1);
  if (log_enabled(Log::graph)) log(Log::graph, "\n" + graph.str());
  if (log_enabled(Log::perf)) log(Log::perf, "\n" + record.str());
  for (const Node& node : graph.nodes) {
    offsets_matter_ |= facts_of(node.op).names_places;
    if (node.op != effects::kWrite) continue;
    for (size_t i = 0; i < graph.inputs.size(); ++i)
      if (node.args[0] == Arg(Ref{graph.inputs[i].value})) written_.push_back(i);
  }
  is_written_.resize(graph.inputs.size());
  for (const size_t input : written_) is_written_[input] = true;
  const std::vector<int32_t> uses = graph.use_counts();
  for (const Input& input : graph.inputs) {
    if (input.source != Source::argument) continue;
    const auto argument = static_cast<size_t>(input.index);
    if (is_read_.size() <= argument) is_read_.resize(argument + 1);
    is_read_[argument] = is_read_[argument] || uses[input.value] > 0;
  }
  if (lowered.preparation)
    preparation = std::make_unique<const Preparation>(*lowered.preparation, recorded.opaque);
  program = std::make_unique<const LinkedProgram>(std::move(lowered), std::move(recorded.opaque),
                                                  cuda_graphs);
  if (!specializes) return;
  again_.passes.evaluate = [this](const Graph& in, const Node& node) {
    return evaluate_node(in, node, program->opaque());
  };
  again_.passes.frozen.clear();
  hot_ = std::make_unique<HotSizes>(
      again_.specialize, [this, spent] { return spent + program->code_ns(); },
      [this](std::span<const int64_t> symbols) { return compile_for(symbols); });
}

// On a device runs end before they are done, so that the host's clock can't tell which is quicker;
// there each choice of sizes can be a CUDA graph of its own.
bool RecordedGraph::Impl::may_specialize(const CompileOptions& options) const {
  return options.specialize > 0 && !graph.symbols.empty() && !options.schedule.backends.empty() &&
         std::ranges::all_of(graph.values,
                             [](const Value& value) { return value.type.device.is_cpu(); });
}

// The graph has been through the passes for any sizes; once more, they know more.
std::shared_ptr<const LinkedProgram> RecordedGraph::Impl::compile_for(
    std::span<const int64_t> symbols) const {
  Graph known = with_known_sizes(graph, symbols);
  Record ignored;
  Program lowered = compile(known, again_, ignored);
  if (lowered.inputs.size() != program->program().inputs.size()) return nullptr;
  count(Counter::own_sizes);
  return std::make_shared<const LinkedProgram>(std::move(lowered), program->opaque());
}

std::vector<std::string> RecordedGraph::Impl::own_sizes() const {
  return hot_ ? hot_->describe(graph.symbols) : std::vector<std::string>();
}

void RecordedGraph::Impl::count_ops(int64_t sign) const {
  count(Counter::ops_fallback, sign * calls_);
  count(Counter::ops_native,
        sign * (static_cast<int64_t>(graph.nodes.size()) - calls_ - on_numbers_));
}

std::string RecordedGraph::Impl::describe(size_t input) const {
  const Input& in = graph.inputs[input];
  switch (in.source) {
    case Source::argument: return "tensor argument " + std::to_string(in.index);
    case Source::captured: return "the tensor captured as %" + std::to_string(in.value);
    case Source::grad: return ".grad of " + describe(in.index);
  }
  return "input";
}

std::vector<at::Tensor> RecordedGraph::Impl::bind(const std::vector<at::Tensor>& arguments) const {
  const std::string& asking = program->program().asks_default_float;
  if (!asking.empty() && default_dtype() != graph.default_float)
    throw Error("the graph was recorded with the default dtype " +
                std::string(name_of(graph.default_float)) + ", which " + asking +
                " makes of integers, and now it is " +
                c10::toString(c10::get_default_dtype_as_scalartype()) +
                "; set it back (torch.set_default_dtype) or record it again");
  if (arguments.size() != same_argument.size())
    throw Error("run() got " + std::to_string(arguments.size()) +
                " tensors; the graph was recorded with " + std::to_string(same_argument.size()));
  for (size_t i = 0; i < arguments.size(); ++i)
    if (same_argument[i] >= 0 && !arguments[i].is_same(arguments[same_argument[i]]))
      throw Error(
          "tensor arguments " + std::to_string(same_argument[i]) + " and " + std::to_string(i) +
          " were the same tensor when the graph was recorded, and are two now; record it again");
  std::vector<at::Tensor> inputs;
  inputs.reserve(graph.inputs.size());
  for (const Input& input : graph.inputs) {
    if (is_prepared(input)) break;
    switch (input.source) {
      case Source::argument: inputs.push_back(arguments[input.index]); break;
      case Source::captured: inputs.push_back(captured[input.index]); break;
      case Source::grad: inputs.push_back(inputs[input.index].grad());
    }
    if (!inputs.back().defined()) throw Error(describe(inputs.size() - 1) + " is missing");
  }
  return inputs;
}

std::vector<int64_t> RecordedGraph::Impl::bind_symbols(
    const std::vector<at::Tensor>& inputs) const {
  const Program& plain = program->program();
  std::vector<int64_t> symbols;
  for (const SymbolBinding& binding : plain.bindings) {
    const at::Tensor& tensor = inputs[binding.input];
    if (binding.dim >= tensor.dim())
      throw Error(describe(binding.input) + " has " + std::to_string(tensor.dim()) +
                  " dimensions; the graph was recorded for " +
                  plain.inputs[binding.input].type.str());
    symbols.push_back(tensor.size(binding.dim));
  }
  if (const Guard* guard = plain.symbols.broken_by(symbols)) {
    std::string values;
    for (size_t i = 0; i < symbols.size(); ++i)
      values += (i ? ", s" : "s") + std::to_string(i) + " = " + std::to_string(symbols[i]);
    throw Error("the graph holds for sizes with " + guard->str() +
                (guard->where.empty() ? "" : " (because of " + guard->where + ")") + "; now " +
                values + ". Record it again for these sizes");
  }
  return symbols;
}

void RecordedGraph::Impl::check_types(const std::vector<at::Tensor>& inputs,
                                      const std::vector<int64_t>& symbols) const {
  const auto same = [&](const Sizes& expected, at::IntArrayRef actual) {
    if (expected.size() != actual.size()) return false;
    for (size_t i = 0; i < actual.size(); ++i)
      if (!(expected[i].is_known() ? expected[i].is(actual[i])
                                   : expected[i].evaluate(symbols) == actual[i]))
        return false;
    return true;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& tensor = inputs[i];
    const TensorType& expected = graph.type(graph.inputs[i].value);
    const c10::Device device = to_c10(expected.device);
    const bool fits =
        tensor.scalar_type() == to_scalar_type(expected.dtype) &&
        same(expected.sizes, tensor.sizes()) && same(expected.strides, tensor.strides()) &&
        tensor.device() == device && tensor.is_conj() == expected.conj &&
        tensor.is_neg() == expected.neg &&
        (!offsets_matter_ || expected.offset.evaluate(symbols) == tensor.storage_offset());
    if (!fits)
      throw Error(describe(i) + " is " + type_of(tensor).str() + "; the graph was recorded for " +
                  expected.str() + ". Record it again for these, or record with dynamic_shapes");
  }
}

// A write must not reach a second input behind the graph's back. An optimizer has a thousand
// inputs, so only those that have a storage in common are compared.
std::optional<std::pair<size_t, size_t>> RecordedGraph::Impl::find_alias(
    const std::vector<at::Tensor>& inputs) const {
  if (written_.empty()) return std::nullopt;
  std::vector<std::pair<const void*, size_t>> by_storage;
  by_storage.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].has_storage())
      by_storage.emplace_back(inputs[i].storage().unsafeGetStorageImpl(), i);
  std::sort(by_storage.begin(), by_storage.end());
  for (size_t a = 0; a < by_storage.size(); ++a)
    for (size_t b = a + 1; b < by_storage.size() && by_storage[b].first == by_storage[a].first; ++b)
      for (const auto& [i, written] : {std::pair(by_storage[a].second, by_storage[b].second),
                                       std::pair(by_storage[b].second, by_storage[a].second)})
        if (is_written_[written] && share_bytes(inputs[i], inputs[written]))
          return std::pair(i, written);
  return std::nullopt;
}

std::vector<at::Tensor> RecordedGraph::Impl::execute(const LinkedProgram& linked,
                                                     std::vector<at::Tensor> inputs,
                                                     const RunSizes& sizes, bool* changed) const {
  std::vector<std::pair<size_t, at::Tensor>> returned;
  for (size_t i = 0; i < returned_input.size(); ++i)
    if (returned_input[i] >= 0) returned.emplace_back(i, inputs[returned_input[i]]);
  if (preparation) {
    const std::shared_ptr<const std::vector<at::Tensor>> prepared = preparation->results(inputs);
    inputs.insert(inputs.end(), prepared->begin(), prepared->end());
  }
  std::vector<at::Tensor> outputs = linked.run_with(sizes, std::move(inputs), changed);
  for (auto& [output, input] : returned) outputs[output] = std::move(input);
  return outputs;
}

std::vector<at::Tensor> RecordedGraph::Impl::run(const std::vector<at::Tensor>& arguments) const {
  count(Counter::runs);
  std::vector<at::Tensor> inputs = bind(arguments);
  std::vector<int64_t> symbols = bind_symbols(inputs);
  check_types(inputs, symbols);
  if (const auto alias = find_alias(inputs))
    throw Error(
        describe(alias->first) + " and " + describe(alias->second) +
        " share memory, which the graph changes in place; they did not when it was recorded");
  try {
    return execute(*program, inputs, *program->sizes_for(symbols));
  } catch (const KernelFailed&) {
    // Nothing is changed yet: the ops themselves say what is wrong.
    const LinkedProgram ops(lower(graph), program->opaque());
    return execute(ops, inputs, *ops.sizes_for(symbols));
  }
}

RunOutcome RecordedGraph::Impl::run_typed(std::vector<at::Tensor> arguments,
                                          std::span<const int64_t> symbols) const {
  const std::shared_ptr<const RunSizes> sizes = program->sizes_for(symbols);
  if (sizes->broken != nullptr) return {};
  std::vector<at::Tensor> inputs;
  inputs.reserve(graph.inputs.size());
  for (const Input& input : graph.inputs) {
    if (is_prepared(input)) break;
    switch (input.source) {
      case Source::argument: inputs.push_back(std::move(arguments[input.index])); break;
      case Source::captured: inputs.push_back(captured[input.index]); break;
      // It is an argument as well, by whose type the graph was chosen.
      case Source::grad: inputs.push_back(inputs[input.index].grad());
    }
    if (!inputs.back().defined()) return {};
    if (offsets_matter_ &&
        graph.type(input.value).offset.evaluate(symbols) != inputs.back().storage_offset())
      return {};
  }
  if (find_alias(inputs)) return {};
  count(Counter::runs);
  arguments.clear();
  bool changed = false;
  try {
    const HotSizes::Turn turn = hot_ ? hot_->begin(symbols) : HotSizes::Turn();
    std::vector<at::Tensor> outputs =
        turn.own ? execute(*turn.own, std::move(inputs), *turn.own->sizes_for({}), &changed)
                 : execute(*program, std::move(inputs), *sizes, &changed);
    if (hot_) hot_->end(turn);
    return RunOutcome::done(std::move(outputs), changed);
  } catch (const KernelFailed&) {
    return RunOutcome::not_for_these();  // the ops themselves say what is wrong
  } catch (const Mispredicted&) {
    return RunOutcome::mispredicted();
  } catch (const std::exception&) {
    return RunOutcome::failed(changed);
  }
}

// Most are sizes, which a run has of its symbols.
void add_numbers(const RecordedGraph::Impl& graph, std::span<const c10::Scalar> numbers,
                 std::vector<at::Tensor>& arguments) {
  static const at::Tensor* const unread = new at::Tensor(number_as_tensor(0));
  for (const c10::Scalar& number : numbers)
    arguments.push_back(graph.is_read(arguments.size()) ? number_as_tensor(number) : *unread);
}

}  // namespace smelt
