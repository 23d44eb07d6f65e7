// Executes the steps of a linked program with PyTorch's own kernels.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "aten/convert.h"
#include "aten/number_node.h"
#include "aten/op_info.h"
#include "aten/stand_ins.h"
#include "base/error.h"
#include "bridge/machine/aten_host.h"
#include "bridge/machine/linked_program.h"
#include "bridge/machine/random_words.h"
#include "graph/numbers.h"
#include "ops/count_op.h"

namespace smelt {

using torch::jit::Stack;

namespace {

// The number behind a 0-dim tensor on the CPU.
Number number_in(const at::Tensor& tensor) {
  const void* data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case c10::ScalarType::Double: return *static_cast<const double*>(data);
    case c10::ScalarType::Long: return *static_cast<const int64_t*>(data);
    default: return *static_cast<const bool*>(data);
  }
}

// What item() gives; most tensors that it is asked of need no call for that.
Number item_of(const at::Tensor& tensor) {
  const bool is_plain = tensor.is_cpu() && tensor.layout() == c10::kStrided &&
                        tensor.numel() == 1 && !tensor.is_neg();
  const c10::ScalarType dtype = is_plain ? tensor.scalar_type() : c10::ScalarType::Undefined;
  switch (dtype) {
    case c10::ScalarType::Float: return *static_cast<const float*>(tensor.const_data_ptr());
    case c10::ScalarType::Double:
    case c10::ScalarType::Long:
    case c10::ScalarType::Bool: return number_in(tensor);
    default: return plain_number(tensor.item()).value();
  }
}

// What is in a register other than a tensor: a number, or a place in the arena. Kernels need no
// tensor around either.
struct Cell {
  std::byte* place = nullptr;
  const LinkedStep::Dense* dense = nullptr;  // of what lies there

  bool is_number = false;
  Number value = false;
};

// As kernels take it.
uint64_t parameter(const Number& number) {
  if (is_float(number)) return std::bit_cast<uint64_t>(std::get<double>(number));
  return static_cast<uint64_t>(to_int(number));
}

}  // namespace

class AtenMachine final : public Machine {
 public:
  // The sizes outlive it.
  AtenMachine(const LinkedProgram& linked, const RunSizes& sizes)
      : linked_(linked),
        sizes_(sizes),
        registers_(linked.program().registers),
        cells_(linked.program().registers),
        arena_(sizes.arena.bytes) {}

  void set(Register reg, at::Tensor tensor) { registers_[reg] = std::move(tensor); }
  void set_number(Register reg, const Number& number) {
    cells_[reg].is_number = true;
    cells_[reg].value = number;
  }
  // Of a number or a place that an op wants as a tensor it is made now.
  at::Tensor& operator[](Register reg) {
    at::Tensor& tensor = registers_[reg];
    if (tensor.defined()) return tensor;
    if (cells_[reg].is_number) tensor = number_as_tensor(to_scalar(cells_[reg].value));
    if (cells_[reg].place) tensor = tensor_at(cells_[reg]);
    return tensor;
  }

  void execute(size_t index) override {
    const LinkedStep& step = linked_.steps_[index];
    switch (step.kind) {
      case LinkedStep::Kind::call: call(step, index); break;
      case LinkedStep::Kind::kernel: run_kernel(step, index); break;
      case LinkedStep::Kind::view: make_view(step, index); break;
      case LinkedStep::Kind::mutator: mutate(step, index); break;
      case LinkedStep::Kind::number: compute_number(step, index); break;
      case LinkedStep::Kind::item: take_item(step, index); break;
      case LinkedStep::Kind::expect:
      case LinkedStep::Kind::fits: check_number(step); break;
      case LinkedStep::Kind::draw: draw(step, index); break;
      default: apply_effect(step, index);
    }
  }

  bool has_changed() const { return has_changed_; }

  Number number_at(Register reg) const {
    return cells_[reg].is_number ? cells_[reg].value : number_in(registers_[reg]);
  }

  void release(Register reg) override {
    Cell& cell = cells_[reg];
    if (cell.place && registers_[reg].defined()) ArenaMemory::leave(registers_[reg]);
    registers_[reg].reset();
    cell.place = nullptr;
    cell.is_number = false;
  }

  // What the calls of a run take (BoxedCall).
  const at::Tensor& tensor(Register reg, bool /*last*/) { return (*this)[reg]; }
  c10::Scalar number(uint32_t reg) const {
    return to_scalar(number_at(static_cast<Register>(reg)));
  }
  const at::Tensor& number_tensor(uint32_t reg) { return (*this)[static_cast<Register>(reg)]; }

 private:
  void fill_stack(const LinkedStep& step) {
    step.fill(stack_, *this);
    for (const auto& [argument, made] : step.symbolic) stack_[argument] = sizes_.arguments[made];
  }

  c10::IntArrayRef sizes_of(const LinkedStep::Dense& dense) const {
    return dense.place < 0 ? c10::IntArrayRef(dense.sizes) : sizes_.at(dense.place, dense.rank);
  }
  c10::IntArrayRef strides_of(const LinkedStep::Dense& dense) const {
    const auto rank = static_cast<int32_t>(dense.rank);
    return dense.place < 0 ? c10::IntArrayRef(dense.strides)
                           : sizes_.at(dense.place + rank, dense.rank);
  }
  int64_t offset_of(const LinkedStep& view) const {
    return view.offset_place < 0 ? view.offset : sizes_.values[view.offset_place];
  }
  at::Tensor allocate(const LinkedStep::Dense& dense, bool on_host) const {
    const c10::IntArrayRef sizes = sizes_of(dense), strides = strides_of(dense);
    if (on_host) return at::detail::empty_strided_cpu(sizes, strides, dense.dtype);
    const c10::DispatchKey key = c10::computeDispatchKey(dense.dtype, c10::kStrided, dense.device);
    return at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(dense.device.type()),
                                             c10::DispatchKeySet(key), dense.dtype);
  }
  at::Tensor tensor_at(const Cell& cell) const {
    return arena_.tensor(cell.place, sizes_of(*cell.dense), strides_of(*cell.dense),
                         cell.dense->dtype);
  }

  // Nobody else holds the tensor or its memory, and that comes from PyTorch's allocator: what an op
  // has wrapped (from_blob, from_numpy) belongs to someone.
  static bool is_ours(const at::Tensor& tensor) {
    return tensor.defined() && tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
           tensor.storage().resizable();
  }

  at::Tensor in_memory_of(const at::Tensor& old, const LinkedStep::Dense& dense) const {
    if (old.sizes() == sizes_of(dense)) return old;
    return at::native::as_strided_tensorimpl(old, sizes_of(dense), strides_of(dense), 0);
  }

  void make_view(const LinkedStep& step, size_t index) {
    const Register result = linked_.program().steps[index].results[0];
    if (result < 0) return;
    const LinkedStep::Dense& dense = step.made[0];
    if (std::byte* const place = cells_[step.targets[0]].place) {
      put(result, place + offset_of(step) * static_cast<int64_t>(c10::elementSize(dense.dtype)),
          dense);
      return;
    }
    const at::Tensor& shown = (*this)[step.targets[0]];
    registers_[result] = at::native::as_strided_tensorimpl(
        shown, sizes_of(dense), strides_of(dense), shown.storage_offset() + offset_of(step));
  }

  void put(Register reg, std::byte* place, const LinkedStep::Dense& dense) {
    cells_[reg].place = place;
    cells_[reg].dense = &dense;
  }

  // The place of a result in the arena, if it has one.
  std::byte* place_of(const Step& plain, size_t i) const {
    if (sizes_.arena.offsets.empty() || plain.arena[i] < 0) return nullptr;
    const int64_t offset = sizes_.arena.offsets[plain.arena[i]];
    return offset < 0 ? nullptr : arena_.at(offset);
  }

  // The memory of a result. `base`: the register of what it begins as, -1 for none. The memory of
  // that is the only one that such a result may take.
  void* make_result(const LinkedStep& step, const Step& plain, size_t i, Register base,
                    bool on_host) {
    const Register reg = plain.results[i], into = plain.into[i], reuse = plain.reuse[i];
    at::Tensor& result = registers_[reg];
    if (std::byte* const place = place_of(plain, i)) {
      const bool taken_over = reuse >= 0 && cells_[reuse].place == place;
      put(reg, place, step.made[i]);
      if (base >= 0 && !taken_over) (*this)[reg].copy_((*this)[base]);
      return place;
    }
    if (into >= 0) {
      result = registers_[into];
    } else if (reuse >= 0 && is_ours(registers_[reuse])) {
      result = in_memory_of(registers_[reuse], step.made[i]);  // it is released after this step
    } else {
      result = allocate(step.made[i], on_host);
      if (base >= 0) result.copy_((*this)[base]);
    }
    return result.mutable_data_ptr();
  }

  static bool takes_argument(KernelImage::Buffer kind) {
    return kind == KernelImage::Buffer::input || kind == KernelImage::Buffer::updated;
  }

  void run_kernel(const LinkedStep& step, size_t index) {
    const Step& plain = linked_.program().steps[index];
    const KernelImage& kernel = linked_.program().kernels[plain.kernel];
    const LinkedKernel& linked = linked_.kernels_[plain.kernel];
    const c10::OptionalDeviceGuard current(linked.device);
    const size_t first = pointers_.size();
    pointers_.resize(first + kernel.buffers.size(), nullptr);
    // Results first: one in the memory of an input may move that (copies on write).
    size_t read = 0, made = 0;
    for (size_t i = 0; i < kernel.buffers.size(); ++i) {
      const KernelImage::Buffer kind = kernel.buffers[i];
      const Register argument = takes_argument(kind) ? step.targets[read++] : -1;
      if (kind == KernelImage::Buffer::input || kind == KernelImage::Buffer::scratch) continue;
      const size_t result = made++;
      pointers_[first + i] = make_result(step, plain, result, argument, !linked.device);
      if (kind == KernelImage::Buffer::zeroed) (*this)[plain.results[result]].zero_();
    }
    read = 0;
    for (size_t i = 0; i < kernel.buffers.size(); ++i) {
      if (kernel.buffers[i] == KernelImage::Buffer::input)
        pointers_[first + i] = address_of(step.targets[read]);
      read += takes_argument(kernel.buffers[i]);
    }
    for (; read < step.targets.size(); ++read)
      params_.push_back(parameter(number_at(step.targets[read])));
    waiting_.push_back({.kernel = linked.code.get(),
                        .sizes = linked.sizes < 0 ? nullptr : &sizes_.values[linked.sizes]});
    waiting_images_.push_back(&kernel);
    stores_ = stores_ || std::ranges::any_of(plain.into, [](Register reg) { return reg >= 0; });
    if (!plain.with_next) run_waiting(plain, *linked.backend);
  }

  // What a kernel reads.
  void* address_of(Register reg) {
    if (cells_[reg].place) return cells_[reg].place;
    return const_cast<void*>(registers_[reg].const_data_ptr());
  }

  // "smelt::exp_sum", "smelt::exp_sum+div" of two that are launched together.
  std::string names_of_waiting() const {
    std::string names = "smelt::";
    for (const KernelImage* kernel : waiting_images_)
      names += (kernel == waiting_images_.front() ? "" : "+") + kernel->name;
    return names;
  }

  void run_waiting(const Step& plain, const Backend& backend) {
    at::RecordFunction range(at::RecordScope::FUNCTION);  // for a profiler, if one is on
    if (range.isActive()) range.before(names_of_waiting());
    has_changed_ = has_changed_ || stores_;
    void* const* buffers = pointers_.data();
    const uint64_t* params = params_.data();
    for (size_t i = 0; i < waiting_.size(); ++i) {
      waiting_[i].buffers = buffers;
      waiting_[i].params = params;
      buffers += waiting_images_[i]->buffers.size();
      params += waiting_images_[i]->params;
    }
    const bool good = backend.launch(waiting_, sizes_.symbols, aten_host());
    waiting_.clear();
    waiting_images_.clear();
    pointers_.clear();
    params_.clear();
    if (!good)
      throw KernelFailed("an index is out of range, or an integer is divided by zero, in " +
                         plain.op);
  }

  // An optimizer's count of steps, on the host: there are as many as parameters.
  static bool is_count(const at::Tensor& tensor) {
    return tensor.defined() && tensor.dim() == 0 && tensor.is_cpu() &&
           tensor.scalar_type() == c10::kFloat && !tensor.is_neg() &&
           !tensor.unsafeGetTensorImpl()->is_python_dispatch();
  }

  // Where all of a step's tensors are counts or the number that is added to them: that number.
  std::optional<float> added_number(const LinkedStep& step) {
    if (step.slots.empty() || step.slots[0].argument != 0 || !step.numbers.empty() ||
        step.in_place_op || step.arguments.size() < 3 || !step.arguments[2].isScalar() ||
        !step.arguments[2].toScalar().equal(1))
      return std::nullopt;
    for (const Register count : step.slots[0].registers)
      if (count < 0 || !is_count((*this)[count])) return std::nullopt;

    const at::Tensor* other = nullptr;
    if (step.slots.size() == 1 && step.arguments[1].isTensor())
      other = &step.arguments[1].toTensor();
    else if (step.slots.size() == 2 && step.slots[1].argument == 1 && !step.slots[1].is_list &&
             step.slots[1].registers[0] >= 0 && is_count((*this)[step.slots[1].registers[0]]))
      other = &(*this)[step.slots[1].registers[0]];
    if (other == nullptr || !other->defined() || !other->is_cpu() || other->dim() != 0 ||
        other->is_complex())
      return std::nullopt;
    const auto number = static_cast<float>(to_scalar(item_of(*other)).toDouble());
    if (std::isnan(number)) return std::nullopt;  // of two, which one comes out is PyTorch's matter
    return number;
  }

  // One step more for each of an optimizer's counts, without PyTorch's way to a kernel.
  bool add_to_counts(const LinkedStep& step, const Step& plain) {
    if (plain.op != kCountOp && plain.op != kCountsOp) return false;
    if (plain.types.empty() || plain.types[0].rank() != 0 || !plain.types[0].device.is_cpu() ||
        plain.types[0].dtype != DType::f32)
      return false;
    const std::optional<float> number = added_number(step);
    if (!number || plain.results.size() != step.slots[0].registers.size()) return false;

    for (size_t i = 0; i < plain.results.size(); ++i) {
      at::Tensor sum = at::detail::empty_cpu({}, c10::kFloat, false, std::nullopt);
      *sum.mutable_data_ptr<float>() =
          *(*this)[step.slots[0].registers[i]].const_data_ptr<float>() + *number;
      if (plain.results[i] >= 0) registers_[plain.results[i]] = std::move(sum);
    }
    return true;
  }

  // What copy_ does with a count, or false.
  static bool copy_count(const at::Tensor& to, const at::Tensor& from) {
    if (!is_count(to) || !is_count(from) || to.is_inference()) return false;
    *to.mutable_data_ptr<float>() = *from.const_data_ptr<float>();
    to.unsafeGetTensorImpl()->bump_version();
    return true;
  }

  void call(const LinkedStep& step, size_t index) {
    const Step& plain = linked_.program().steps[index];
    if (add_to_counts(step, plain)) return;
    const bool in_place = step.in_place_op && is_ours(registers_[plain.reuse[0]]);
    fill_stack(step);
    if (in_place) {
      std::rotate(stack_.begin(), stack_.begin() + plain.taken, stack_.begin() + plain.taken + 1);
      step.in_place_op->callBoxed(&stack_);
    } else if (plain.visible) {  // the caller's tensor and this view of it must know each other
      c10::impl::ForceDispatchKeyGuard outside(outside_);
      step.op->callBoxed(&stack_);
    } else if (plain.grad) {
      at::AutoGradMode grad(true);
      step.op->callBoxed(&stack_);
    } else {
      step.op->callBoxed(&stack_);
    }
    store_results(plain, step.checked);
  }

  Number operand(const LinkedStep::Operand& operand) const {
    return operand.reg < 0 ? operand.literal : number_at(operand.reg);
  }

  void compute_number(const LinkedStep& step, size_t index) {
    const Number b = step.operands.size() > 1 ? operand(step.operands[1]) : Number(false);
    const std::optional<Number> result = compute(step.number_op, operand(step.operands[0]), b);
    if (!result) throw Mispredicted("Python can't compute a number of the program");
    store_number(index, *result);
  }

  void take_item(const LinkedStep& step, size_t index) {
    store_number(index, item_of((*this)[step.operands[0].reg]));
  }

  void draw(const LinkedStep& step, size_t index) {
    const RandomPlace drawn = take_random_words(step.generator.toGenerator(), step.count);
    store_number(index, drawn.seed);
    store_number(index, drawn.place, 1);
  }

  void store_number(size_t index, const Number& number, size_t result = 0) {
    const Register reg = linked_.program().steps[index].results[result];
    if (reg >= 0) set_number(reg, number);
  }

  void check_number(const LinkedStep& step) const {
    const Number number = operand(step.operands[0]);
    const bool holds = step.kind == LinkedStep::Kind::fits
                           ? numbers::fits(number, step.fitting)
                           : std::get<bool>(*compute(NumberOp::truth, number)) == step.truth;
    if (!holds) throw Mispredicted("a number is not what the program was made for");
  }

  void mutate(const LinkedStep& step, size_t index) {
    fill_stack(step);
    std::vector<at::Tensor> changed;
    for (size_t position : step.mutated) changed.push_back(stack_[position].toTensor());
    step.op->callBoxed(&stack_);
    for (at::Tensor& tensor : changed) stack_.emplace_back(std::move(tensor));
    store_results(linked_.program().steps[index], false);
  }

  void store_results(const Step& plain, bool checked) {
    size_t next = 0;
    const auto store = [&](at::Tensor tensor) {
      if ((checked || LinkedProgram::check_types) && tensor.defined() &&
          tensor.layout() == c10::kStrided)
        check_type(plain, next, tensor, checked);
      const Register reg = plain.results[next++];
      if (reg >= 0) registers_[reg] = std::move(tensor);
    };
    take_results(stack_, store);
  }

  void check_type(const Step& plain, size_t result, const at::Tensor& tensor, bool custom) const {
    const TensorType& expected = plain.types[result];
    const TensorType actual = type_of(tensor);
    const auto same = [&](const Sizes& a, const Sizes& b) {
      if (a.size() != b.size()) return false;
      for (size_t i = 0; i < a.size(); ++i)
        if (a[i].evaluate(sizes_.symbols) != b[i].known()) return false;
      return true;
    };
    if (expected.dtype == actual.dtype && same(expected.sizes, actual.sizes) &&
        same(expected.strides, actual.strides) && expected.device.type == actual.device.type &&
        expected.conj == actual.conj && expected.neg == actual.neg)
      return;
    const std::string what =
        plain.op + " was recorded with result " + expected.str() + " and gave " + actual.str();
    if (custom)
      throw Error(what + ": the shape depends on tensor contents, so that a graph can't hold it");
    SMELT_CHECK(false, what);
  }

  // Effects are what the caller sees: with autograd's bookkeeping of versions, without recording
  // gradients.
  void apply_effect(const LinkedStep& step, size_t index) {
    c10::impl::ForceDispatchKeyGuard outside(outside_);
    const Step& plain = linked_.program().steps[index];
    const auto target = [&](size_t i) -> at::Tensor& { return (*this)[step.targets[i]]; };
    has_changed_ = has_changed_ || step.kind == LinkedStep::Kind::write ||
                   step.kind == LinkedStep::Kind::set_grad;
    switch (step.kind) {
      case LinkedStep::Kind::write:
        if (target(0).is_same(target(1)))  // a kernel has stored it there
          target(0).unsafeGetTensorImpl()->bump_version();
        else if (!copy_count(target(0), target(1)))
          target(0).copy_(target(1));
        if (plain.results[0] >= 0) registers_[plain.results[0]] = target(0);
        break;
      case LinkedStep::Kind::set_grad: target(0).mutable_grad() = target(1); break;
      case LinkedStep::Kind::clear_grad: target(0).mutable_grad() = at::Tensor(); break;
      case LinkedStep::Kind::expect_no_grad:
        if (target(0).grad().defined())
          throw Error(
              "the function was recorded while .grad of a tensor was None and adds to it; now "
              "there is a "
              "gradient. Clear it before run(), or record again with gradients in place");
        break;
      case LinkedStep::Kind::save_rng: {
        at::Generator generator = step.generator.toGenerator();
        std::lock_guard lock(generator.mutex());
        if (plain.results[0] >= 0) registers_[plain.results[0]] = generator.get_state();
        break;
      }
      case LinkedStep::Kind::restore_rng: {
        at::Generator generator = step.generator.toGenerator();
        std::lock_guard lock(generator.mutex());
        generator.set_state(target(0));
        break;
      }
      default: SMELT_CHECK(false, "not an effect");
    }
  }

  const LinkedProgram& linked_;
  const RunSizes& sizes_;
  std::vector<at::Tensor> registers_;
  std::vector<Cell> cells_;  // by register
  const ArenaMemory arena_;
  Stack stack_;
  bool stores_ = false;       // a kernel that waits stores into a tensor of the caller's
  bool has_changed_ = false;  // one of the caller's tensors, or its gradient, is another one now
  // Of the kernels that wait, one behind the other.
  std::vector<void*> pointers_;
  std::vector<uint64_t> params_;
  std::vector<Launch> waiting_;                     // for the last kernel of their batch
  std::vector<const KernelImage*> waiting_images_;  // of the same
  const c10::impl::LocalDispatchKeySet outside_ = c10::impl::tls_local_dispatch_key_set();
};

namespace {

// A machine that somebody looks at.
class ObservedMachine final : public Machine {
 public:
  ObservedMachine(AtenMachine& machine, StepObserver& observer)
      : machine_(machine), observer_(observer) {}

  void execute(size_t index) override {
    machine_.execute(index);
    observer_.after_step(index, [&](Register reg) { return machine_[reg]; });
  }
  void release(Register reg) override { machine_.release(reg); }

 private:
  AtenMachine& machine_;
  StepObserver& observer_;
};

// The host's part has little to release.
void run_part(const Program& program, AtenMachine& machine, Machine& used, const PartOfRun& part) {
  const PartsOfRun& parts = part.parts;
  if (part.host) part.values.assign(parts.numbers.size(), Number(false));
  const auto note = [&](const std::vector<uint32_t>& numbers) {
    for (const uint32_t number : numbers)
      part.values[number] = machine.number_at(parts.numbers[number]);
  };
  if (part.host) note(parts.given);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    if (parts.is_host[i] != part.host) continue;
    if (!part.host)
      for (const uint32_t number : parts.used[i])
        machine.set_number(parts.numbers[number], part.values[number]);
    used.execute(i);
    if (part.host) {
      note(parts.made[i]);
      continue;
    }
    for (const Register reg : program.steps[i].release) used.release(reg);
  }
}

}  // namespace

std::vector<at::Tensor> LinkedProgram::run_with(const RunSizes& sizes,
                                                std::vector<at::Tensor> inputs,
                                                bool* changed) const {
  if (graphs_)
    if (auto outputs = graphs_->run(*this, inputs, sizes.symbols, changed))
      return std::move(*outputs);
  return run_steps_with(sizes, std::move(inputs), nullptr, nullptr, changed);
}

std::vector<at::Tensor> LinkedProgram::run_steps_with(const RunSizes& sizes,
                                                      std::vector<at::Tensor> inputs,
                                                      StepObserver* observer, const PartOfRun* part,
                                                      bool* changed) const {
  RECORD_FUNCTION("smelt::run", {});
  std::vector<at::Tensor> outputs;
  outputs.reserve(program_.outputs.size());
  SMELT_CHECK(!sizes.broken, "a program is run for sizes that it is not for");
  make_code();
  AtenMachine machine(*this, sizes);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ProgramInput& input = program_.inputs[i];
    if (input.reg < 0) continue;
    if (numbers::is_number(input.type))
      machine.set_number(input.reg, number_in(inputs[i]));
    else
      machine.set(input.reg, std::move(inputs[i]));
  }
  for (const ProgramConstant& constant : program_.constants)
    machine.set(constant.reg, *static_cast<const at::Tensor*>(constant.data.get()));
  // Eager refuses to change a tensor of inference mode outside of it; kernels would not notice.
  for (const Register reg : in_place_)
    if (machine[reg].is_inference()) machine[reg].unsafeGetTensorImpl()->bump_version();
  {
    // Gradients and casts were written down as ops; nothing may add its own.
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                             c10::autocast_dispatch_keyset);
    at::NoGradGuard no_grad;
    try {
      std::optional<ObservedMachine> observed;
      if (observer) observed.emplace(machine, *observer);
      Machine& used = observed ? static_cast<Machine&>(*observed) : machine;
      if (part)
        run_part(program_, machine, used, *part);
      else
        smelt::run(program_, used);
    } catch (...) {
      if (changed != nullptr) *changed = machine.has_changed();
      throw;
    }
    if (changed != nullptr) *changed = machine.has_changed();
  }
  if (part && part->host) return {};
  for (Register reg : program_.outputs) outputs.push_back(reg < 0 ? at::Tensor() : machine[reg]);
  return outputs;
}

}  // namespace smelt
