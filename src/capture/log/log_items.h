// What an op log (op_log.h) consists of: plain data.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "aten/log_facts.h"
#include "aten/op_info.h"
#include "aten/stand_ins.h"
#include "base/log_ids.h"
#include "base/type.h"
#include "capture/log/grad_ops.h"

namespace smelt {

// Why running the log would not be a faithful repetition. The op itself was computed.
struct OpTrouble {
  enum class Kind : uint8_t {
    foreign_tensor,  // an argument that is neither input nor result
    data_dependent,  // a host value or a shape that depends on contents
    subclass,        // __torch_dispatch__
    transform,       // functorch
    autograd,        // the autograd graph was changed around the dispatcher, or is being run
    memory,          // a tensor's storage was given or exchanged
    argument,        // an argument or result that can't be kept
    internal,        // an exception that no one foresaw
  };
  Kind kind;
  std::string detail;  // the op, usually
};

// Tensors of an argument: its place and the values in it.
struct LogSlot {
  uint32_t argument = 0;
  bool is_list = false;
  bool is_optional_list = false;
  std::vector<LogValue> values;  // -1: an undefined or absent one
};

struct LogItem;
struct LoggedTensor;

// What a hook made of a gradient while a backward pass ran, or the backward of a custom function of
// several. Its ops are the pass's, not the log's.
struct LogHook {
  LogValue tensor = -1;           // whose gradient it was given; -1: a custom function's
  size_t function = 0;            // of a custom function: the item that called it
  std::vector<LogValue> grads;    // those gradients; -1: none
  std::vector<LogValue> results;  // what took their place: of a function one for each argument
  std::vector<LogItem> items;
};

// A custom autograd function whose forward was followed.
struct LogFunction {
  NodePtr node;
  std::vector<LogItem> items;     // of its forward; nobody outside sees what they make
  std::vector<LogValue> inputs;   // one for each argument; -1: it is no tensor
  std::vector<LogValue> outputs;  // as its forward made them
  std::vector<bool> differentiable;
  bool materializes = true;  // its backward is given zeros where no gradient came
};

struct LogItem {
  const OpInfo* op = nullptr;
  std::vector<c10::IValue> arguments;  // without the tensors in slots
  std::vector<LogSlot> slots;
  std::vector<LogScalar> scalars;
  std::vector<LogValue> results;                     // one per tensor returned; -1: undefined
  std::vector<LogValue> written;                     // whose memory or metadata the op changes
  std::vector<std::pair<LogValue, uint32_t>> rises;  // of versions, by so much
  int32_t number = -1;  // of an op that gives a number: its place among those
  int32_t ambient = 0;
  bool random = false;
  bool sized = false;        // the sizes of its results depend on contents: each run expects these
  c10::Scalar given;         // of an op that gives a number: what it gave
  bool expected = false;     // and each run expects it
  bool has_effects = false;  // OpInfo::may_have_effects, of one of its ops if it is a call
  // > 0: part of a piece, which has this number, whose backward computes it again
  // (torch.utils.checkpoint).
  int32_t recomputed = 0;
  std::vector<LogHook> hooks;     // of a backward pass, in the order in which they were called
  bool registers_hook = false;    // on a result of the log; the passes that call it have it
  bool applies_function = false;  // it calls a custom autograd function
  std::shared_ptr<const LogFunction> function;  // of a call that can be written down as ops
};

// The tensors that an item takes.
template <typename Visit>
void each_argument(const LogItem& item, const Visit& visit) {
  for (const LogSlot& slot : item.slots)
    for (LogValue value : slot.values)
      if (value >= 0) visit(value);
}

// What is taken of the values of the log, as an argument of the pass that calls hooks or of the
// call of a function.
LogSlot hook_uses(const std::vector<LogHook>& hooks, uint32_t argument,
                  const std::vector<LoggedTensor>& values);
LogSlot function_uses(const LogFunction& function, uint32_t argument,
                      const std::vector<LoggedTensor>& values);

struct LoggedTensor {
  enum class Kind : uint8_t { input, constant, result };
  Kind kind = Kind::result;
  int32_t memory = 0;  // equal for tensors that share storage; 0: not known
  size_t item = 0;     // of a result: the op that made it
  bool requires_grad = false;
  bool dynamic = false;  // its shape depends on contents: it may be handed on, but not looked at
  bool retains_grad = false;
  bool inner = false;  // made in the forward of a custom function, and known to its backward alone
  bool apart = false;  // changes of it do not count as changes of others on its memory: `.data`
  uint32_t version = 0, first_version = 0;  // now, and when the log met it
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::Device device = c10::kCPU;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;  // in its memory
  bool conj = false, neg = false;
  c10::weak_intrusive_ptr<c10::TensorImpl> impl;
  at::Tensor constant;

  explicit LoggedTensor(c10::weak_intrusive_ptr<c10::TensorImpl> weak) : impl(std::move(weak)) {}
  // As a graph would have it; nothing if no graph can (sparse, quantized).
  std::optional<TensorType> type() const;
};

}  // namespace smelt
