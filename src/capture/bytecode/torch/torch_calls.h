// Calls of what PyTorch has in C, and of functions of its that are known by name.
#pragma once

#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {

// PyTorch's C functions. True if it was one of those that are known and has been called; so for the
// others here.
bool call_torch(Trace* trace, Value callee, std::span<const Value> arguments, PyObject* names,
                Result* result);
// torch_state.cpp: functions of torch._C that read or set what no op on this machine depends on.
bool call_state(Trace& trace, Value callee, std::span<const Value> arguments, PyObject* names,
                Result* result);
// torch_state.cpp: functions of torch.cuda that say what the GPUs are.
bool call_about_gpus(Trace& trace, Value function, std::span<const Value> arguments,
                     PyObject* keywords, Result* result);
// An op that is asked for in the place of something else.
Result call_op_on(Trace& trace, Value op, std::span<const Value> arguments,
                  PyObject* keywords = nullptr);
// torch.tensor(number), as_tensor(number) of numbers that may be others in the next call:
// tensors_of_numbers.cpp. False: of other things.
bool make_of_number(Trace& trace, Value callee, std::span<const Value> arguments,
                    PyObject* keywords, Result* result);
// The states of random generators: generator_calls.cpp.
bool call_generator(Trace& trace, Value callee, std::span<const Value> arguments, PyObject* names,
                    Result* result);
bool call_manual_seed(Trace& trace, Value function, std::span<const Value> arguments,
                      PyObject* names, Result* result);
// Functions that work on the autograd graph: autograd_calls.cpp.
bool call_autograd(Trace& trace, Value function, std::span<const Value> arguments, PyObject* names,
                   Result* result);
// requires_grad_() and such: the call is made again by each run, in its place among the tensor ops.
Result call_on_graph(Trace& trace, Value callee, std::span<const Value> arguments, PyObject* names);
bool make_parameter(Trace& trace, Value callee, std::span<const Value> arguments,
                    PyObject* keywords, Result* result);
// torch.autograd.profiler.record_function, a label in a profile: profiler_calls.cpp.
bool call_profiler(Trace& trace, Value function, std::span<const Value> arguments, PyObject* names,
                   Result* result);
// torch.utils.checkpoint.checkpoint: checkpoints.cpp.
bool call_checkpoint(Trace& trace, Value function, std::span<const Value> arguments,
                     PyObject* names, Result* result);

// transform_calls.cpp. call_transform: what function transforms ask of C. is_transformed: a level of
// one is open, or some argument is a tensor of one. call_transformed_pass: a backward pass then, by
// _engine_run_backward(). call_on_wrapped: a method that changes such a tensor's place in autograd.
bool call_transform(Trace& trace, Value callee, std::span<const Value> arguments, PyObject* names,
                    Result* result);
bool is_transformed(const Trace& trace, std::span<const Value> arguments);
Result call_transformed_pass(Trace& trace, Value function, std::span<const Value> arguments,
                             PyObject* names);
Result call_on_wrapped(Trace& trace, Value callee, std::span<const Value> arguments,
                       PyObject* names);

// learning_rates.cpp: which argument is the learning rate of a fused optimizer's step and a
// run-time scalar (else the number of arguments), and what to give in its place.
size_t place_of_rate(Trace& trace, PyObject* function, std::span<const Value> arguments,
                     PyObject* keywords);
Result rate_as_tensor(Trace& trace, Value rate);

}  // namespace smelt::bytecode
