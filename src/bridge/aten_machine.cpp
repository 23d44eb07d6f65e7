// Executes the steps of a linked program with PyTorch's own kernels.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided_native.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "base/error.h"
#include "bridge/launch.h"
#include "bridge/linked_program.h"
#include "capture/dispatch/convert.h"
#include "capture/dispatch/op_info.h"

namespace smelt {

using torch::jit::Stack;

class AtenMachine final : public Machine {
 public:
  AtenMachine(const LinkedProgram& linked, std::vector<int64_t> symbols)
      : linked_(linked), symbols_(std::move(symbols)), registers_(linked.program().registers) {}

  at::Tensor& operator[](Register reg) { return registers_[reg]; }

  void execute(size_t index) override {
    const LinkedStep& step = linked_.steps_[index];
    switch (step.kind) {
      case LinkedStep::Kind::call: call(step, index); break;
      case LinkedStep::Kind::kernel: run_kernel(step, index); break;
      case LinkedStep::Kind::view: make_view(step, index); break;
      case LinkedStep::Kind::mutator: mutate(step, index); break;
      default: apply_effect(step, index);
    }
  }

  void release(Register reg) override { registers_[reg].reset(); }

 private:
  void fill_stack(const LinkedStep& step) {
    stack_.assign(step.arguments.begin(), step.arguments.end());
    for (const LinkedStep::Slot& slot : step.slots) {
      c10::IValue& argument = stack_[slot.arg];
      if (!slot.is_list)
        argument = registers_[slot.registers[0]];
      else if (slot.is_optional_list)
        argument = optional_list(slot.registers);
      else
        argument = list(slot.registers);
    }
    for (size_t i : step.symbolic) stack_[i] = evaluate(step, i);
  }
  c10::IValue list(const std::vector<Register>& registers) const {
    std::vector<at::Tensor> tensors;
    tensors.reserve(registers.size());
    for (Register reg : registers) tensors.push_back(registers_[reg]);
    return tensors;
  }
  c10::IValue optional_list(const std::vector<Register>& registers) const {
    c10::List<std::optional<at::Tensor>> tensors;
    tensors.reserve(registers.size());
    for (Register reg : registers)
      tensors.push_back(reg < 0 ? std::nullopt : std::optional<at::Tensor>(registers_[reg]));
    return tensors;
  }
  c10::IValue evaluate(const LinkedStep& step, size_t arg) const {
    const Step& plain = linked_.program().steps[&step - linked_.steps_.data()];
    const size_t skip = step.kind == LinkedStep::Kind::mutator ? 1 : 0;
    const ArgReader reader{.tensor = [](Ref) { return at::Tensor(); },
                           .opaque = [&](Opaque index) { return linked_.opaque_[index.index]; },
                           .size = [&](const Size& size) { return size.evaluate(symbols_); }};
    return to_ivalue(plain.args[arg + skip], op_info(*step.op).arg_types[arg], reader);
  }

  at::Tensor allocate(const LinkedStep::Dense& dense, const TensorType& type) const {
    if (dense.known) return at::detail::empty_strided_cpu(dense.sizes, dense.strides, dense.dtype);
    std::vector<int64_t> sizes, strides;
    for (const Size& size : type.sizes) sizes.push_back(size.evaluate(symbols_));
    for (const Size& stride : type.strides) strides.push_back(stride.evaluate(symbols_));
    return at::detail::empty_strided_cpu(sizes, strides, dense.dtype);
  }

  // Nobody else holds the tensor or its memory, and that comes from PyTorch's allocator: what an op
  // has wrapped (from_blob, from_numpy) belongs to someone.
  static bool is_ours(const at::Tensor& tensor) {
    return tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
           tensor.storage().resizable();
  }

  static at::Tensor in_memory_of(const at::Tensor& old, const LinkedStep::Dense& dense) {
    if (!dense.known || old.sizes() == dense.sizes) return old;
    return at::native::as_strided_tensorimpl(old, dense.sizes, dense.strides, 0);
  }

  void make_view(const LinkedStep& step, size_t index) {
    const Register result = linked_.program().steps[index].results[0];
    if (result < 0) return;
    const at::Tensor& shown = registers_[step.targets[0]];
    const LinkedStep::Dense& dense = step.made[0];
    registers_[result] = at::native::as_strided_tensorimpl(shown, dense.sizes, dense.strides,
                                                           shown.storage_offset() + step.offset);
  }

  void run_kernel(const LinkedStep& step, size_t index) {
    const Step& plain = linked_.program().steps[index];
    const KernelCode& kernel = linked_.program().kernels[plain.kernel];
    pointers_.assign(kernel.buffers.size(), nullptr);
    size_t read = 0, made = 0;
    for (size_t i = 0; i < kernel.buffers.size(); ++i) {
      switch (kernel.buffers[i]) {
        case KernelCode::Buffer::input:
          pointers_[i] = const_cast<void*>(registers_[step.targets[read++]].const_data_ptr());
          break;
        case KernelCode::Buffer::output:
        case KernelCode::Buffer::updated:
        case KernelCode::Buffer::zeroed: {
          at::Tensor& result = registers_[plain.results[made]];
          const bool updated = kernel.buffers[i] == KernelCode::Buffer::updated;
          const at::Tensor* base = updated ? &registers_[step.targets[read++]] : nullptr;
          at::Tensor* old = plain.reuse[made] < 0 ? nullptr : &registers_[plain.reuse[made]];
          if (old && is_ours(*old)) {
            result = in_memory_of(*old, step.made[made]);  // it is released after this step
          } else {
            result = allocate(step.made[made], plain.types[made]);
            if (base) result.copy_(*base);
          }
          if (kernel.buffers[i] == KernelCode::Buffer::zeroed) result.zero_();
          pointers_[i] = result.mutable_data_ptr();
          ++made;
          break;
        }
        case KernelCode::Buffer::scratch: break;
      }
    }
    if (!launch(kernel, pointers_, symbols_))
      throw KernelFailed("an index is out of range, or an integer is divided by zero, in " +
                         plain.op);
  }

  void call(const LinkedStep& step, size_t index) {
    fill_stack(step);
    const Step& plain = linked_.program().steps[index];
    if (plain.visible) {  // the caller's tensor and this view of it must know each other
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
      if ((checked || LinkedProgram::check_types) && tensor.defined())
        check_type(plain, next, tensor, checked);
      const Register reg = plain.results[next++];
      if (reg >= 0) registers_[reg] = std::move(tensor);
    };
    for (c10::IValue& value : stack_) {
      if (value.isTensor())
        store(std::move(value).toTensor());
      else if (value.isTensorList())
        for (at::Tensor& tensor : value.toTensorVector()) store(std::move(tensor));
    }
    stack_.clear();
  }

  void check_type(const Step& plain, size_t result, const at::Tensor& tensor, bool custom) const {
    const TensorType& expected = plain.types[result];
    const TensorType actual = type_of(tensor);
    const auto same = [&](const Sizes& a, const Sizes& b) {
      if (a.size() != b.size()) return false;
      for (size_t i = 0; i < a.size(); ++i)
        if (a[i].evaluate(symbols_) != b[i].known()) return false;
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
    const auto target = [&](size_t i) -> at::Tensor& { return registers_[step.targets[i]]; };
    switch (step.kind) {
      case LinkedStep::Kind::write:
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
  const std::vector<int64_t> symbols_;
  std::vector<at::Tensor> registers_;
  Stack stack_;
  std::vector<void*> pointers_;
  const c10::impl::LocalDispatchKeySet outside_ = c10::impl::tls_local_dispatch_key_set();
};

std::vector<at::Tensor> LinkedProgram::run(std::vector<at::Tensor> inputs,
                                           std::vector<int64_t> symbols) const {
  AtenMachine machine(*this, std::move(symbols));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (program_.inputs[i].reg >= 0) machine[program_.inputs[i].reg] = std::move(inputs[i]);
  for (const ProgramConstant& constant : program_.constants)
    machine[constant.reg] = *static_cast<const at::Tensor*>(constant.data.get());
  {
    // Gradients and casts were written down as ops; nothing may add its own.
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                             c10::autocast_dispatch_keyset);
    at::NoGradGuard no_grad;
    smelt::run(program_, machine);
  }
  std::vector<at::Tensor> outputs;
  outputs.reserve(program_.outputs.size());
  for (Register reg : program_.outputs) outputs.push_back(reg < 0 ? at::Tensor() : machine[reg]);
  return outputs;
}

}  // namespace smelt
