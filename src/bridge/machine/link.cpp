// Programs linked: names looked up, literals converted, the places of tensors noted.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "aten/convert.h"
#include "aten/find_op.h"
#include "aten/name_dtype.h"
#include "aten/op_info.h"
#include "aten/stand_ins.h"
#include "base/error.h"
#include "bridge/machine/linked_program.h"
#include "bridge/machine/random_words.h"
#include "diagnostics/clock.h"
#include "diagnostics/counters.h"
#include "diagnostics/log.h"
#include "diagnostics/record.h"
#include "graph/effects.h"
#include "graph/numbers.h"
#include "runtime/program_text.h"

namespace smelt {
namespace {

bool has_symbol(const Arg& arg) {
  bool found = false;
  each_size(arg, [&](const Size& size) { found |= !size.is_known(); });
  return found;
}

std::vector<Register> registers_in(const Arg& arg) {
  if (arg.is<Ref>()) return {arg.get<Ref>().id};
  std::vector<Register> registers;
  if (!arg.is<ArgList>()) return registers;
  for (const Arg& item : arg.get<ArgList>())
    registers.push_back(item.is<Ref>() ? item.get<Ref>().id : -1);
  return registers;
}

bool holds_tensors(const Arg& arg) {
  bool found = false;
  each_ref(arg, [&](Ref) { found = true; });
  return found;
}

bool is_optional_list(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::ListType &&
         type->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::OptionalType;
}

// An op takes a Scalar, or a list of them, of which some are known only when the program runs.
void note_numbers(LinkedStep& step, size_t argument, const Arg& arg) {
  const std::vector<Register> registers = registers_in(arg);
  for (size_t k = 0; k < registers.size(); ++k)
    if (registers[k] >= 0)
      step.numbers.push_back({.argument = static_cast<uint32_t>(argument),
                              .element = arg.is<ArgList>() ? static_cast<int32_t>(k) : -1,
                              .index = static_cast<uint32_t>(registers[k])});
}

void link_call(LinkedStep& step, std::span<const Arg> args, const std::string& name,
               const std::vector<c10::IValue>& opaque, SizesOfRuns& sizes) {
  step.op = find_op(name);
  const OpInfo& op = op_info(*step.op);
  step.checked = op.is_custom && library_of(op.name) != Library::mkldnn;  // passes write those
  const ArgReader reader{.tensor = [](Ref) { return at::Tensor(); },
                         .number = [](Ref) { return at::Scalar(0.0); },  // each run has its own
                         .opaque = [&](Opaque index) { return opaque[index.index]; },
                         .size = [](const Size& size) { return size.as_known().value_or(0); }};
  for (size_t i = 0; i < args.size(); ++i) {
    if (holds_tensors(args[i])) {
      const bool is_number = takes_numbers(op.arg_types[i]);
      if (is_number && has_symbol(args[i]))
        throw Error(name + " takes a list of a number that changes and a symbolic size");
      if (is_number) {
        note_numbers(step, i, args[i]);
        step.arguments.push_back(to_ivalue(args[i], op.arg_types[i], reader));
      } else {
        step.slots.push_back({static_cast<uint32_t>(i), args[i].is<ArgList>(),
                              is_optional_list(op.arg_types[i]), registers_in(args[i])});
        step.arguments.emplace_back();
      }
      continue;
    }
    if (has_symbol(args[i])) {
      const c10::TypePtr& type = op.arg_types[i];
      const auto make = [&opaque, arg = args[i], type](std::span<const int64_t> symbols) {
        return to_ivalue(arg, type,
                         {.tensor = [](Ref) { return at::Tensor(); },
                          .number = {},
                          .opaque = [&](Opaque index) { return opaque[index.index]; },
                          .size = [&](const Size& size) { return size.evaluate(symbols); }});
      };
      step.symbolic.emplace_back(i, sizes.add_argument(args[i], type.get(), make));
    }
    step.arguments.push_back(to_ivalue(args[i], op.arg_types[i], reader));
  }
}

void describe_results(const Step& step, LinkedStep& linked, SizesOfRuns& all) {
  for (const TensorType& type : step.types) {
    LinkedStep::Dense dense{.dtype = to_scalar_type(type.dtype),
                            .device = to_c10(type.device),
                            .sizes = {},
                            .strides = {},
                            .rank = type.sizes.size()};
    if (!all_known(type.sizes) || !all_known(type.strides)) {
      Sizes both = type.sizes;
      both.insert(both.end(), type.strides.begin(), type.strides.end());
      dense.place = all.add(both);
    }
    for (size_t d = 0; dense.place < 0 && d < type.sizes.size(); ++d) {
      dense.sizes.push_back(type.sizes[d].known());
      dense.strides.push_back(type.strides[d].known());
    }
    linked.made.push_back(std::move(dense));
  }
}

LinkedStep link_kernel(const Step& step, SizesOfRuns& sizes) {
  LinkedStep linked;
  linked.kind = LinkedStep::Kind::kernel;
  for (const Arg& arg : step.args) linked.targets.push_back(arg.get<Ref>().id);
  describe_results(step, linked, sizes);
  return linked;
}

// A view that only the program sees needs no op: sizes, strides and place are known.
bool links_as_view(const Step& step, LinkedStep& linked, SizesOfRuns& sizes) {
  if (!step.view_offset || step.results.size() != 1) return false;
  describe_results(step, linked, sizes);
  if (const auto offset = step.view_offset->as_known())
    linked.offset = *offset;
  else
    linked.offset_place = sizes.add({&*step.view_offset, 1});
  for (const Arg& arg : step.args)
    each_ref(arg, [&](Ref ref) { linked.targets.push_back(ref.id); });
  linked.kind = LinkedStep::Kind::view;
  return true;
}

LinkedStep link_number(const Step& step) {
  using Kind = LinkedStep::Kind;
  LinkedStep linked;
  const OpName name(step.op);
  linked.kind = name == numbers::kCompute  ? Kind::number
                : name == numbers::kItem   ? Kind::item
                : name == numbers::kExpect ? Kind::expect
                                           : Kind::fits;
  for (const Arg& arg : step.args) {
    if (arg.is<std::string>())
      linked.number_op = parse_number_op(arg.get<std::string>()).value();
    else if (arg.is<Ref>())
      linked.operands.push_back({arg.get<Ref>().id, false});
    else if (arg.is<DType>())
      linked.fitting = arg.get<DType>();
    else if (linked.kind == Kind::expect)
      linked.truth = arg.get<bool>();
    else
      linked.operands.push_back({-1, numbers::literal(arg).value()});
  }
  return linked;
}

LinkedStep link_step(const Step& step, const std::vector<c10::IValue>& opaque, SizesOfRuns& sizes) {
  using Kind = LinkedStep::Kind;
  if (step.kernel >= 0) return link_kernel(step, sizes);
  if (LinkedStep view; links_as_view(step, view, sizes)) return view;
  LinkedStep linked;
  const OpName name(step.op);
  if (numbers::is_number_op(name)) return link_number(step);
  const auto effect = [&](Kind kind) {
    linked.kind = kind;
    for (const Arg& arg : step.args)
      if (arg.is<Ref>()) linked.targets.push_back(arg.get<Ref>().id);
    for (const Arg& arg : step.args) {
      if (arg.is<Device>())
        linked.generator = at::globalContext().defaultGenerator(to_c10(arg.get<Device>()));
      if (arg.is<Opaque>()) linked.generator = opaque[arg.get<Opaque>().index];
    }
  };
  if (name == effects::kWrite)
    effect(Kind::write);
  else if (name == effects::kSetGrad)
    effect(Kind::set_grad);
  else if (name == effects::kExpectNoGrad)
    effect(Kind::expect_no_grad);
  else if (name == effects::kClearGrad)
    effect(Kind::clear_grad);
  else if (name == effects::kSaveRng)
    effect(Kind::save_rng);
  else if (name == effects::kRestoreRng)
    effect(Kind::restore_rng);
  else if (name == numbers::kDraw) {
    effect(Kind::draw);
    linked.count = step.args[1].get<Size>().known();
    check_drawing_blocks(step.args[0].get<Device>(), step.args[2].get<Size>().known());
  } else if (effects::is_mutator(name)) {
    linked.kind = Kind::mutator;
    for (const Arg& position : step.args[0].get<ArgList>())
      linked.mutated.push_back(position.get<Size>().known());
    link_call(linked, std::span(step.args).subspan(1), effects::mutated_op(name).str(), opaque,
              sizes);
  } else {
    link_call(linked, step.args, step.op, opaque, sizes);
    if (linked.slots.empty() && linked.numbers.empty() && step.types.size() == 1)
      name_dtype(linked.op->schema(), linked.arguments, to_scalar_type(step.types[0].dtype));
    if (!step.in_place_op.empty()) linked.in_place_op = find_op(step.in_place_op);
  }
  return linked;
}

std::vector<LinkedKernel> link_kernels(std::span<const KernelImage> images, SizesOfRuns& all) {
  std::vector<LinkedKernel> kernels(images.size());
  for (size_t i = 0; i < images.size(); ++i) {
    const Backend* backend = find_backend(images[i].backend);
    SMELT_CHECK(backend != nullptr, "there is no back end named " + images[i].backend);
    kernels[i] = {backend, nullptr, std::nullopt};
    if (!images[i].unmade) kernels[i].code = backend->load(images.subspan(i, 1))[0];
    if (!backend->runs_on_host()) {
      kernels[i].device = to_c10(images[i].device);
      continue;
    }
    Sizes sizes = images[i].sizes;
    sizes.push_back(images[i].units);
    sizes.push_back(images[i].unit_cost);
    kernels[i].sizes = all.add(sizes);
  }
  return kernels;
}

// Tests: its text says all of it.
void check_text(const Program& program) {
  const std::string text = to_text(program);
  SMELT_CHECK(to_text(parse_program(text)) == text, "the text of a program is not complete");
}

}  // namespace

bool LinkedProgram::check_types = [] {
  const char* value = std::getenv("SMELT_CHECK_TYPES");
  return value && std::string(value) == "1";
}();

LinkedProgram::LinkedProgram(Program program, std::vector<c10::IValue> opaque, GraphUse graphs)
    : program_(std::move(program)), opaque_(std::move(opaque)), sizes_(program_) {
  if (check_types) check_text(program_);
  kernels_ = link_kernels(program_.kernels, sizes_);
  if (std::ranges::any_of(program_.kernels,
                          [](const auto& image) { return image.unmade != nullptr; }))
    code_ = Code::unmade;
  steps_.reserve(program_.steps.size());
  for (const Step& step : program_.steps) {
    steps_.push_back(link_step(step, opaque_, sizes_));
    for (const Register reg : step.into)
      if (reg >= 0) in_place_.push_back(reg);
  }
  sizes_.finish();
  graphs_ = GraphedRuns::make(*this, graphs);
}

// All at once, for the sake of threads.
void LinkedProgram::make_code() const {
  if (code_.load(std::memory_order_acquire) == Code::made) return;
  const std::lock_guard lock(code_mutex_);
  if (code_ == Code::failed) throw KernelFailed("kernels could not be made");
  if (code_ == Code::made) return;
  const int64_t start = now_ns();
  try {
    std::map<const Backend*, std::vector<size_t>> missing;
    for (size_t i = 0; i < kernels_.size(); ++i)
      if (!kernels_[i].code) missing[kernels_[i].backend].push_back(i);
    for (const auto& [backend, positions] : missing) {
      std::vector<KernelImage> images;
      for (const size_t i : positions) images.push_back(program_.kernels[i]);
      const std::vector<std::shared_ptr<const LoadedKernel>> loaded = backend->load(images);
      for (size_t i = 0; i < positions.size(); ++i) kernels_[positions[i]].code = loaded[i];
    }
  } catch (const std::exception& error) {
    code_ = Code::failed;
    warn_once("kernels could not be made, and PyTorch's are called instead: " +
              std::string(error.what()));
    throw KernelFailed("kernels could not be made");
  }
  const int64_t spent = now_ns() - start;
  code_ns_ = spent;
  add_code_ns(spent);
  count(Counter::compile_ns, spent);
  Record record;
  record.entries.push_back(
      {.stage = "code",
       .name = kernels_.front().backend->target(),
       .seconds = 1e-9 * static_cast<double>(spent),
       .changed = true,
       .note = std::to_string(kernels_.size()) + " kernels, by their first run"});
  if (log_enabled(Log::perf)) log(Log::perf, "\n" + record.str());
  code_.store(Code::made, std::memory_order_release);
}

}  // namespace smelt
