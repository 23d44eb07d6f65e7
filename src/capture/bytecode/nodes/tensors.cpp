#include "capture/bytecode/nodes/tensors.h"

namespace smelt::bytecode {
namespace {

std::unique_ptr<Tensors>& instance() {
  static std::unique_ptr<Tensors> tensors;
  return tensors;
}

}  // namespace

Tensors& tensors() { return *instance(); }

void set_tensors(std::unique_ptr<Tensors> tensors) { instance() = std::move(tensors); }

}  // namespace smelt::bytecode
