// What can't be plain data of a log (log/call_log.h), and stands beside it under the same numbers:
// the tensors themselves, what an op is called through, generators, what hooks and custom functions
// do.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aten/op_info.h"
#include "capture/log/grad_ops.h"
#include "log/call_log.h"

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

struct LogHook;
struct LogFunction;

// Beside a LoggedCall.
struct RealCall {
  const OpInfo* op = nullptr;
  std::vector<c10::IValue> opaque;  // by Opaque::index in the arguments: generators, objects
  std::vector<LogHook> hooks;       // of a backward pass, in the order in which they were called
  std::shared_ptr<const LogFunction> function;  // of a call that can be written down as ops
};

// Calls that belong to another one: a hook's, a function's.
struct InnerCalls {
  std::vector<LoggedCall> plain;
  std::vector<RealCall> real;
};

// A call that is being written down.
struct OpenCall {
  LoggedCall plain;
  RealCall real;
};

// What a hook made of a gradient while a backward pass ran, or the backward of a custom function of
// several. Its ops are the pass's, not the log's.
struct LogHook {
  LogValue tensor = -1;           // whose gradient it was given; -1: a custom function's
  size_t function = 0;            // of a custom function: the call of it
  std::vector<LogValue> grads;    // those gradients; -1: none
  std::vector<LogValue> results;  // what took their place: of a function one for each argument
  InnerCalls calls;
};

// A custom autograd function whose forward was followed.
struct LogFunction {
  NodePtr node;
  InnerCalls calls;               // of its forward; nobody outside sees what they make
  std::vector<LogValue> inputs;   // one for each argument; -1: it is no tensor
  std::vector<LogValue> outputs;  // as its forward made them
  std::vector<bool> differentiable;
  bool materializes = true;  // its backward is given zeros where no gradient came
};

// The values that its calls take from outside, as an argument of the pass that calls hooks, or of
// the call of a function. -1, and values known to a function alone, do not count.
ArgList values_used(const std::vector<LogHook>& hooks, const CallLog& log);
ArgList values_used(const LogFunction& function, const CallLog& log);

// Beside a LoggedValue.
struct RealTensor {
  c10::weak_intrusive_ptr<c10::TensorImpl> impl;
  at::Tensor constant;                      // of a constant: what it holds
  c10::Device device = c10::kCPU;           // also where it has no type that a graph could have
  uint32_t version = 0, first_version = 0;  // now, and when the log met it
  bool resized = false;                     // its sizes or strides were changed in place

  explicit RealTensor(c10::weak_intrusive_ptr<c10::TensorImpl> weak) : impl(std::move(weak)) {}
};

}  // namespace smelt
