// A call of an op through PyTorch's dispatcher, prepared: what does not change from run to run is
// converted once, and it is known where tensors and numbers go. The programs of logs and of graphs
// make their calls so.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace smelt {

struct BoxedCall {
  // Where tensors go: an argument, or the elements of a list.
  struct Slot {
    uint32_t argument = 0;
    bool is_list = false;
    bool is_optional_list = false;
    std::vector<int32_t> registers;  // -1: none
    std::vector<bool> last = {};     // nobody reads the register after this; empty: not known
  };
  // Where a number goes that each run has its own of.
  struct NumberUse {
    uint32_t argument = 0;
    int32_t element = -1;    // of a list; -1: it is the argument
    bool is_tensor = false;  // as a 0-dim tensor
    uint32_t index = 0;      // as the program counts its numbers
  };

  std::optional<c10::OperatorHandle> op;
  std::vector<c10::IValue> arguments;  // literals in place
  std::vector<Slot> slots;
  std::vector<NumberUse> numbers;

  // Puts the arguments on an empty stack. The source has
  //   at::Tensor tensor(int32_t reg, bool last);
  //   c10::Scalar number(uint32_t index);
  //   at::Tensor number_tensor(uint32_t index);
  template <class Source>
  void fill(std::vector<c10::IValue>& stack, Source&& source) const;
};

// A list of ints with a symbolic one among them.
inline c10::IValue with_size(const c10::IValue& ints, size_t at, const c10::SymInt& size) {
  std::vector<c10::SymInt> sizes;
  for (const c10::IValue& element : ints.toListRef())
    sizes.push_back(element.isInt() ? c10::SymInt(element.toInt()) : element.toSymInt());
  sizes[at] = size;
  return c10::SymIntArrayRef(sizes);
}

// Hands each tensor that an op returned to store(tensor), those of lists one by one, and leaves an
// empty stack.
template <class Store>
void take_results(std::vector<c10::IValue>& stack, const Store& store) {
  for (c10::IValue& value : stack) {
    if (value.isTensor())
      store(std::move(value).toTensor());
    else if (value.isTensorList())
      for (at::Tensor& tensor : value.toTensorVector()) store(std::move(tensor));
  }
  stack.clear();
}

template <class Source>
void BoxedCall::fill(std::vector<c10::IValue>& stack, Source&& source) const {
  stack.assign(arguments.begin(), arguments.end());
  const c10::IValue* own_list = nullptr;
  for (const NumberUse& use : numbers) {
    c10::IValue& argument = stack[use.argument];
    if (use.is_tensor) {
      argument = source.number_tensor(use.index);
    } else if (use.element < 0) {
      argument = source.number(use.index);
    } else {
      // A list is shared with the call, which keeps its own.
      const c10::Scalar number = source.number(use.index);
      if (number.isSymInt() && (argument.isIntList() || argument.isSymIntList())) {
        argument = with_size(argument, static_cast<size_t>(use.element), number.toSymInt());
        continue;
      }
      if (own_list != &argument) argument = argument.toList().copy();
      own_list = &argument;
      argument.toList().set(static_cast<size_t>(use.element), number);
    }
  }
  for (const Slot& slot : slots) {
    c10::IValue& argument = stack[slot.argument];
    const auto tensor = [&](size_t i) -> decltype(auto) {
      return source.tensor(slot.registers[i], !slot.last.empty() && slot.last[i]);
    };
    if (!slot.is_list) {
      argument = tensor(0);
    } else if (slot.is_optional_list) {
      c10::List<std::optional<at::Tensor>> list;
      list.reserve(slot.registers.size());
      for (size_t i = 0; i < slot.registers.size(); ++i) {
        at::Tensor element = slot.registers[i] < 0 ? at::Tensor() : tensor(i);
        list.push_back(element.defined() ? std::optional<at::Tensor>(std::move(element))
                                         : std::nullopt);
      }
      argument = std::move(list);
    } else {
      std::vector<at::Tensor> list;
      list.reserve(slot.registers.size());
      for (size_t i = 0; i < slot.registers.size(); ++i) list.push_back(tensor(i));
      argument = std::move(list);
    }
  }
}

}  // namespace smelt
