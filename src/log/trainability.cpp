#include "log/trainability.h"

namespace smelt {

Decision can_train(const CallLog& log, std::span<const LogValue> inputs,
                   std::span<const LogValue> outputs) {
  const InputMemory input_memory(log);
  for (const LogAmbient& ambient : log.ambients)
    if (ambient.inference) return Decision::forbid("inference mode is on");
  for (const LogValue input : inputs)
    if (log.value(input).dual)
      return Decision::forbid("an input is a dual number of forward-mode autograd");
  for (const LogValue output : outputs)
    if (output >= 0 && input_memory.contains(log.value(output).memory))
      return Decision::forbid("an output that may take part in autograd shows an input's memory");
  for (const LoggedCall& call : log.calls)
    for (const LogValue value : call.written)
      if (input_memory.contains(log.value(value).memory) && log.value(value).requires_grad)
        return Decision::forbid("an input that requires a gradient is changed in place");
  return Decision::allow();
}

}  // namespace smelt
