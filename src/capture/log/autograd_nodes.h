// What a log knows of the nodes of autograd's graph: which a backward pass has gone over, and whose
// gradients somebody asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/log_ids.h"
#include "capture/log/grad_ops.h"

namespace smelt {

class AutogradNodes {
 public:
  // A hook on the tensor, which this output of the node leads to.
  void note_hook(NodePtr node, uint32_t output, LogValue tensor);
  // The tensor whose hooks the node calls for the output; -1: none is known.
  LogValue hooked(const torch::autograd::Node* node, uint32_t output) const;

  // retain_grad() of a tensor that the node made.
  void retain(NodePtr node, LogValue tensor);
  bool retains_any() const { return !retained_.empty(); }
  // Those that a pass over the nodes comes to.
  std::vector<LogValue> retained(const std::vector<NodePtr>& nodes) const;
  bool is_retained(const NodePtr& node) const;

  // The call is a pass over the nodes that frees what they have saved.
  void consume(const std::vector<NodePtr>& nodes, size_t call);
  // By one of the first `calls` calls.
  bool is_consumed(const NodePtr& node, size_t calls) const;

  // Calls from `position` on are taken back, and what they made.
  void rewind(size_t position, const std::function<bool(LogValue)>& is_gone);

 private:
  struct Hook {
    NodePtr node;
    uint32_t output;
    LogValue tensor;
  };
  struct Retained {
    NodePtr node;
    LogValue tensor;
  };
  struct Consumed {
    NodePtr node;
    size_t call;
  };
  std::vector<Hook> hooks_;
  std::vector<Retained> retained_;
  std::vector<Consumed> consumed_;
};

}  // namespace smelt
