// The text form of a kernel:
//
//   kernel "softmax" outer [16] inner [100] params 1
//   b0: f32[1600] input
//   b1: f32[1600] output
//   inner stage
//     v0: f32 = load b0[100*i0 + i1]
//     v1: f32 = reduce max v0
//   inner stage
//     v2: f32 = load b0[100*i0 + i1]
//     v3: f32 = sub v2, v1
//     store b1[100*i0 + i1] = v3
//   end
//
// The first line ends with "ordered" for such kernels. Instructions are numbered by their place, so
// that a store, which has no value, takes a number too.
#include <charconv>
#include <cmath>

#include "base/reader.h"
#include "loops/kernel.h"

namespace smelt::loops {
namespace {

constexpr std::string_view kKinds[] = {"input", "output", "updated", "scratch"};

// The shortest digits that read back as the same double.
std::string number_text(double number) {
  if (std::isnan(number)) return "nan";
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

std::string place_text(const Inst& inst) {
  return "b" + std::to_string(inst.slot) + "[" + inst.index.str() + "]";
}

std::string value_text(Val value) { return "v" + std::to_string(value); }

std::string operands_text(const Inst& inst) {
  switch (inst.op) {
    case Op::constant:
      return is_floating(inst.dtype) ? number_text(inst.number) : std::to_string(inst.integer);
    case Op::param: return std::to_string(inst.slot);
    case Op::index: return inst.index.str();
    case Op::load: return place_text(inst);
    case Op::check: return value_text(inst.args[0]) + " below " + inst.bound.str();
    case Op::scan:
    case Op::reduce: return std::string(name_of(inst.reduction)) + " " + value_text(inst.args[0]);
    default: break;
  }
  std::string text;
  for (int i = 0; i < facts_of(inst.op).arguments; ++i) {
    if (i > 0) text += ", ";
    text += value_text(inst.args[i]);
  }
  return text;
}

void append_inst(std::string& text, const Inst& inst, Val value) {
  std::string name(facts_of(inst.op).name);
  text += "  ";
  if (inst.op == Op::store || inst.op == Op::accumulate) {
    if (inst.reduction != Reduction::sum) name += " " + std::string(name_of(inst.reduction));
    text += name + " " + place_text(inst) + " = " + value_text(inst.args[0]) + "\n";
    return;
  }
  text += value_text(value) + ": " + std::string(name_of(inst.dtype)) + " = " + name + " " +
          operands_text(inst) + "\n";
}

}  // namespace

std::string Kernel::str() const {
  std::string text =
      "kernel " + quote(name) + " outer " + smelt::str(outer) + " inner " + smelt::str(inner);
  if (params != 0) text += " params " + std::to_string(params);
  text += ordered ? " ordered\n" : "\n";
  for (size_t i = 0; i < buffers.size(); ++i) {
    text += "b" + std::to_string(i) + ": " + std::string(name_of(buffers[i].dtype)) + "[" +
            buffers[i].elements.str() + "] " +
            std::string(kKinds[static_cast<size_t>(buffers[i].kind)]) + "\n";
  }
  for (const Stage& stage : stages) {
    text += stage.inner ? "inner stage\n" : "outer stage\n";
    for (Val v = stage.begin; v < stage.end; ++v) append_inst(text, insts[v], v);
  }
  return text + "end\n";
}

}  // namespace smelt::loops
