#include "codegen/cpu/likely_kernel.h"

#include <algorithm>
#include <memory>

namespace smelt::cpu {
namespace {

using loops::Atom;
using loops::Index;

Index with_symbols(const Index& index, std::span<const int64_t> symbols) {
  Index made(index.constant().evaluate(symbols));
  for (const loops::Term& term : index.terms()) {
    Atom atom = term.atom;
    if (atom.inner) {
      atom.inner = std::make_shared<const Index>(with_symbols(*atom.inner, symbols));
      atom.divisor = atom.divisor.evaluate(symbols);
    }
    made = made + of_atom(std::move(atom)) * Size(term.stride.evaluate(symbols));
  }
  return made;
}

}  // namespace

loops::Kernel likely_kernel(const loops::Kernel& kernel, std::span<const int64_t> symbols) {
  const auto has_value = [&](const Size& size) {
    return size.highest_symbol() < static_cast<int>(symbols.size());
  };
  const auto covers = [&](const loops::Buffer& buffer) { return has_value(buffer.elements); };
  if (!std::ranges::all_of(size_params(kernel), has_value) ||
      !std::ranges::all_of(kernel.buffers, covers))
    return kernel;
  loops::Kernel likely = kernel;
  for (Sizes* sizes : {&likely.outer, &likely.inner})
    for (Size& size : *sizes) size = size.evaluate(symbols);
  for (loops::Buffer& buffer : likely.buffers) buffer.elements = buffer.elements.evaluate(symbols);
  for (loops::Inst& inst : likely.insts) {
    inst.index = with_symbols(inst.index, symbols);
    inst.bound = inst.bound.evaluate(symbols);
  }
  return likely;
}

}  // namespace smelt::cpu
