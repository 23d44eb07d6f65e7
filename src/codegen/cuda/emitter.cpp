#include "codegen/cuda/emitter.h"

#include <algorithm>

#include "base/bounds.h"

namespace smelt::cuda {

Emitter::Emitter(const Kernel& kernel, const Plan& plan, std::string name, Part part)
    : kernel_(kernel),
      plan_(plan),
      name_(std::move(name)),
      part_(part),
      sizes_(loops::size_params(kernel)),
      extents_(kernel.extents()),
      outer_(static_cast<int>(kernel.outer.size())),
      escapes_(kernel.insts.size(), false),
      array_(kernel.insts.size(), false) {
  const auto stage_of = [&](Val value) {
    return std::ranges::find_if(kernel_.stages, [&](const Stage& s) { return value < s.end; });
  };
  const auto use = [&](Val value, Val by) {
    if (stage_of(value) != stage_of(by)) escapes_[value] = true;
  };
  const auto use_index = [&](const auto& self, const Index& index, Val by) -> void {
    for (const loops::Term& term : index.terms()) {
      if (term.atom.inner) self(self, *term.atom.inner, by);
      if (term.atom.kind == loops::Atom::Kind::value) use(term.atom.id, by);
    }
  };
  for (size_t v = 0; v < kernel.insts.size(); ++v) {
    const Inst& inst = kernel.insts[v];
    use_index(use_index, inst.index, static_cast<Val>(v));
    for (int i = 0; i < loops::facts_of(inst.op).arguments; ++i)
      use(inst.args[i], static_cast<Val>(v));
  }
}

void Emitter::line(const std::string& text) {
  text_.append(static_cast<size_t>(2 * depth_), ' ');
  text_ += text + "\n";
}
void Emitter::open(const std::string& text) {
  line(text + " {");
  ++depth_;
}
void Emitter::close() {
  --depth_;
  line("}");
}

// Scratch in the workspace is there for as many teams as run at the same time.
bool Emitter::is_looped() const {
  return std::ranges::find(plan_.homes, Home::global) != plan_.homes.end();
}

void Emitter::write_parameters() {
  std::string text = kKernelHead + std::to_string(plan_.threads) + ") " + name_ + "(";
  bool first = true;
  const auto add = [&](const std::string& parameter) {
    text += (first ? "" : ", ") + parameter;
    first = false;
  };
  for (size_t i = 0; i < kernel_.buffers.size(); ++i) {
    const Buffer& buffer = kernel_.buffers[i];
    if (buffer.kind == Buffer::Kind::scratch) continue;
    add((buffer.kind == Buffer::Kind::input ? "const " : "") + memory_type(buffer.dtype) + "* b" +
        std::to_string(i));
  }
  for (size_t i = 0; i < sizes_.size(); ++i) add("const i64 size" + std::to_string(i));
  for (int i = 0; i < kernel_.params; ++i) add("const i64 param" + std::to_string(i));
  if (is_looped() || plan_.slices > 1) add("char* workspace");
  open(text + ")");
  for (size_t i = 0; i < sizes_.size(); ++i)
    line("const Index n" + std::to_string(i) + " = static_cast<Index>(size" + std::to_string(i) +
         ");");
}

// What reductions and scratch buffers have in shared memory.
void Emitter::declare_shared() {
  bool columns = false;
  for (size_t v = 0; v < kernel_.insts.size(); ++v) {
    const Op op = kernel_.insts[v].op;
    if ((op != Op::reduce && op != Op::scan) || plan_.team == 1) continue;
    const std::string type = reduction_type(static_cast<Val>(v)) + "::Value";
    const std::string space = "space" + std::to_string(v);
    if (plan_.columns) {
      // One after the other.
      if (!columns) line("__shared__ uint4 column_space[" + std::to_string(plan_.threads) + "];");
      columns = true;
      line(type + "* const " + space + " = reinterpret_cast<" + type + "*>(column_space);");
    } else if (plan_.team > 32) {
      line("__shared__ " + type + " " + space + "[32];");
    }
  }
  const std::string slots = "gridDim.x * " + std::to_string(plan_.items_per_block());
  if (is_looped()) {
    line("const i64 slots = static_cast<i64>(" + slots + ");");
    line("const i64 slot = static_cast<i64>(blockIdx.x) * " +
         std::to_string(plan_.items_per_block()) + " + local;");
    if (plan_.columns || plan_.serial) line("const i64 scratch_stride = slots;");
    line("char* scratch = workspace;");
  }
  for (size_t i = 0; i < kernel_.buffers.size(); ++i) {
    const Buffer& buffer = kernel_.buffers[i];
    const std::string type = memory_type(buffer.dtype), name = "b" + std::to_string(i);
    const std::string elements =
        size_text(buffer.kind == Buffer::Kind::scratch ? buffer.elements : 0);
    switch (plan_.homes[i]) {
      case Home::none: break;
      case Home::registers:
        line(type + " " + name + "[" + std::to_string(plan_.steps) + "][" +
             std::to_string(plan_.vector) + "];");
        break;
      case Home::shared:
        line("__shared__ " + type + " " + name + "_of_block[" + elements + " * " +
             std::to_string(plan_.items_per_block()) + "];");
        line(type + "* const " + name + " = " + name + "_of_block + local * " + elements + ";");
        break;
      case Home::global:
        line(type + "* const " + name + " = reinterpret_cast<" + type + "*>(scratch) + slot" +
             (plan_.columns || plan_.serial ? "" : " * " + elements) + ";");
        line("scratch += (slots * " + elements + " * sizeof(" + type + ") + 15) / 16 * 16;");
    }
  }
}

// A flat row-major number, as dimensions.
void Emitter::declare_dims(const std::string& from, int first, int last, int vector_dim) {
  std::string rest = from;
  for (int dim = last; dim-- > first;) {
    const std::string name = "i" + std::to_string(dim);
    const bool is_vector = dim == vector_dim && plan_.vector > 1;
    const std::string times = is_vector ? " * " + std::to_string(plan_.vector) : "";
    if (dim == first) {
      line("const Index " + name + " = " + rest + times + ";");
      break;
    }
    std::string extent = size_text(kernel_.extent(dim));
    const std::string vector = std::to_string(plan_.vector);
    if (is_vector && plan_.tail)
      extent = "((" + extent + " + " + std::to_string(plan_.vector - 1) + ") / " + vector + ")";
    else if (is_vector)
      extent = "(" + extent + " / " + vector + ")";
    const std::string flat = "static_cast<UIndex>(" + rest + ")",
                      by = "static_cast<UIndex>(" + extent + ")";
    line("const Index " + name + " = static_cast<Index>(" + flat + " % " + by + ")" + times + ";");
    const std::string next = "above" + std::to_string(dim);
    line("const Index " + next + " = static_cast<Index>(" + flat + " / " + by + ");");
    rest = next;
  }
}

void Emitter::find_item() {
  const std::string each = std::to_string(plan_.items_per_block());
  line("const Index points = " + product_text(kernel_.outer) + ";");
  const std::string vector = std::to_string(plan_.vector);
  if (!plan_.outer_vector || plan_.apart)
    line("const Index items = points;");
  else if (plan_.tail && outer_ == 1)
    line("const Index items = (points + " + std::to_string(plan_.vector - 1) + ") / " + vector +
         ";");
  else if (plan_.tail)
    line("const Index items = " + product_text(std::span(kernel_.outer).first(outer_ - 1)) +
         " * ((" + size_text(kernel_.outer.back()) + " + " + std::to_string(plan_.vector - 1) +
         ") / " + vector + ");");
  else
    line("const Index items = points / " + vector + ";");
  if (plan_.columns) {
    line("const int local = threadIdx.x % " + each + ";");
    line("const int thread = threadIdx.x / " + each + ";");
  } else {
    line("const int local = threadIdx.x / " + std::to_string(plan_.team) + ";");
    line("const int thread = threadIdx.x % " + std::to_string(plan_.team) + ";");
  }
  declare_shared();
  if (is_looped()) {
    line("const Index blocks = (items + " + each + " - 1) / " + each + ";");
    open("for (Index block = blockIdx.x; block < blocks; block += gridDim.x)");
  } else {
    line("const Index block = blockIdx.x;");
  }
  if (plan_.apart) {
    const std::string threads = std::to_string(plan_.threads);
    line("const Index first = block * " + each + " + threadIdx.x;");
    line("if (first >= items) return;");
    count_lanes("(items - first + " + std::to_string(plan_.threads - 1) + ") / " + threads);
    return;
  }
  line(std::string(plan_.columns ? "" : "const ") + "Index item = block * " + each + " + local;");
  if (plan_.columns) {
    // Others do the last one's work over again and store nothing: they are needed at barriers.
    line("const bool active = item < items;");
    line("if (!active) item = items - 1;");
  } else {
    line(std::string("if (item >= items) ") + (is_looped() ? "continue;" : "return;"));
  }
  declare_dims("item", 0, outer_, plan_.outer_vector ? plan_.vector_dim : -1);
  if (plan_.tail && plan_.outer_vector)
    count_lanes(size_text(kernel_.outer.back()) + " - i" + std::to_string(outer_ - 1));
}

// How many points the vector at hand has.
void Emitter::count_lanes(const std::string& left) {
  const std::string vector = std::to_string(plan_.vector);
  line("const int count = static_cast<int>(" + left + " < " + vector + " ? " + left + " : " +
       vector + ");");
}

void Emitter::sync() {
  if (plan_.team == 1) return;
  if (plan_.columns || plan_.team > 32)
    line("__syncthreads();");
  else
    line("__syncwarp(team_mask<" + std::to_string(plan_.team) + ">());");
}

void Emitter::write_stage(const Stage& stage) {
  if (!stage.inner)
    write_outer(stage, part_ != Part::slices);
  else if (part_ == Part::finish)
    combine_slices(stage);
  else
    write_inner(stage);
  // What other threads of the team have written, or still read.
  bool waits = false;
  for (Val v = stage.begin; v < stage.end; ++v) {
    const Inst& inst = kernel_.insts[v];
    if (inst.slot < 0 || inst.op == Op::param || plan_.homes[inst.slot] == Home::registers ||
        kernel_.buffers[inst.slot].kind == Buffer::Kind::input)
      continue;
    for (size_t later = stage.end; later < kernel_.insts.size(); ++later)
      waits =
          waits || (kernel_.insts[later].slot == inst.slot && kernel_.insts[later].op != Op::param);
  }
  if (waits) sync();
}

std::string Emitter::run() {
  write_parameters();
  if (plan_.tile_dim >= 0) {
    write_tiles();
    close();
    return std::move(text_);
  }
  find_item();
  if (plan_.slices > 1) {
    line("char* partial = workspace;");
    for (size_t v = 0; v < kernel_.insts.size(); ++v) {
      if (kernel_.insts[v].op != Op::reduce) continue;
      const std::string type = reduction_type(static_cast<Val>(v)) + "::Value";
      line(type + "* const partial" + std::to_string(v) + " = reinterpret_cast<" + type +
           "*>(partial);");
      line("partial += (" + std::to_string(plan_.slices) + "ll * points * sizeof(" + type +
           ") + 15) / 16 * 16;");
    }
  }
  for (const Stage& stage : kernel_.stages) {
    write_stage(stage);
    if (part_ == Part::slices && stage.inner) break;
  }
  if (is_looped()) {
    if (plan_.team > 1) sync();
    close();
  }
  close();
  return std::move(text_);
}

}  // namespace smelt::cuda
