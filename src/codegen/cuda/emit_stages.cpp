#include <algorithm>

#include "base/bounds.h"
#include "codegen/cuda/emitter.h"

namespace smelt::cuda {

namespace {

bool is_store(const Inst& inst) { return inst.op == Op::store || inst.op == Op::accumulate; }

// The function object of accumulate for a buffer: combined in f32 where that is of half precision.
std::string combined(const Inst& inst, const std::string& old, const std::string& value) {
  const std::string type = value_type(inst.dtype);
  const bool half = loops::is_half(inst.dtype);
  const std::string in = half ? "f32" : type;
  const char* function = inst.reduction == loops::Reduction::product ? "Product"
                         : inst.reduction == loops::Reduction::min   ? "Min"
                         : inst.reduction == loops::Reduction::max   ? "Max"
                                                                     : "Sum";
  const std::string both =
      std::string(function) + "<" + in + ">::both(" +
      (half ? "cast<f32>(" + old + "), cast<f32>(" + value + ")" : old + ", " + value) + ")";
  return half ? "cast<" + type + ">(" + both + ")" : both;
}

}  // namespace

std::string Emitter::store_guard() const {
  std::string conditions;
  const auto add = [&](const std::string& condition) {
    conditions += (conditions.empty() ? "" : " && ") + condition;
  };
  if (plan_.columns) add("active");
  if (in_scan_) add("inside");
  if (!in_inner_ && plan_.team > 1) add("thread == 0");
  if (in_lane_ && plan_.tail) add("lane < count");
  return conditions.empty() ? "" : "if (" + conditions + ") ";
}

void Emitter::write_store(Val value, const std::string& what) {
  const Inst& inst = kernel_.insts[value];
  const std::string element = element_text(inst, in_lane_);
  if (kernel_.ordered) {
    line(store_guard() + "add_atomically(&" + element + ", " + what + ");");
    return;
  }
  std::string result = what;
  if (inst.op == Op::accumulate) result = combined(inst, loaded(inst, element), what);
  line(store_guard() + element + " = " + result + ";");
}

void Emitter::write_one(Val value) {
  const Inst& inst = kernel_.insts[value];
  if (inst.op == Op::constant) return;
  if (inst.op == Op::reduce) return combine(value);
  std::string result;
  if (inst.op == Op::scan && in_scan_) {
    const std::string type = reduction_type(value), team = std::to_string(plan_.team);
    result = "scan_row<" + type + ", " + team + ">(inside ? " + ref(inst.args[0]) + " : " + type +
             "::none(), sum" + number(value) + ", " +
             (plan_.team > 32 ? "space" + number(value) : "nullptr") + ")";
  } else if (inst.op == Op::scan) {
    const std::string sum = "sum" + number(value);
    combine(value);
    result = sum;
  } else if (inst.op == Op::load && plan_.tiled[value]) {
    result = loaded(inst, "tile" + number(value) + "[across][down]");
  } else if (inst.op == Op::load && plan_.kept[value] >= 0) {
    const bool many = plan_.varies[plan_.keeps[plan_.kept[value]]];
    result = loaded(
        inst, "kept" + std::to_string(plan_.kept[value]) + "[step][" + (many ? "lane" : "0") + "]");
  } else if (inst.op == Op::load && plan_.homes[inst.slot] == Home::registers) {
    result =
        loaded(inst, "b" + std::to_string(inst.slot) + "[step][" + (in_lane_ ? "lane" : "0") + "]");
  } else if (in_lane_ && is_loaded_ahead(value)) {
    result = loaded(inst, "x" + number(value) + "[lane]");
  } else {
    result = expression(inst);
    if (inst.op == Op::load && in_lane_ && plan_.tail)
      result = "lane < count ? " + element_text(inst, true) +
               (inst.dtype == DType::b8 ? " != 0" : "") + " : " + value_type(inst.dtype) + "()";
  }
  if (array_[value])
    line("v" + number(value) + "[lane] = " + result + ";");
  else
    line("const " + value_type(inst.dtype) + " v" + number(value) + " = " + result + ";");
}

void Emitter::write_insts(const std::vector<Val>& insts, bool stores) {
  // Stores of an outer stage wait until all threads of the team have read what they may overwrite.
  const bool deferred = !in_inner_ && plan_.team > 1;
  std::vector<Val> varying, later;
  for (const Val v : insts) {
    const Inst& inst = kernel_.insts[v];
    if (has_lanes() && (plan_.varies[v] || inst.op == Op::reduce)) {
      varying.push_back(v);
    } else if (!is_store(inst)) {
      write_one(v);
    } else if (stores && plan_.homes[inst.slot] == Home::registers) {
      line("b" + std::to_string(inst.slot) + "[step][0] = " + ref(inst.args[0]) + ";");
    } else if (stores) {
      if (deferred)
        later.push_back(v);
      else
        write_store(v, ref(inst.args[0]));
    }
  }
  if (!later.empty()) sync();
  for (const Val v : later) write_store(v, ref(kernel_.insts[v].args[0]));
  if (!varying.empty()) write_lanes(varying, stores);
}

void Emitter::open_lanes() {
  open("SMELT_UNROLL for (int lane = 0; lane < " + std::to_string(plan_.vector) + "; ++lane)");
  if (!plan_.apart) return;
  line("const Index item = first + lane * " + std::to_string(plan_.threads) + ";");
  declare_dims("item", 0, outer_, -1);
}

// Before the loop over the vector: by one access, or so that those of all its points are under way.
bool Emitter::is_loaded_ahead(Val value) const {
  const Inst& inst = kernel_.insts[value];
  if (inst.op != Op::load || plan_.kept[value] >= 0 || plan_.homes[inst.slot] == Home::registers)
    return false;
  return plan_.apart ? !inst.index.uses_values() : plan_.wide[value];
}

void Emitter::write_lanes(const std::vector<Val>& insts, bool stores) {
  const std::string vector = std::to_string(plan_.vector);
  const bool deferred = !in_inner_ && plan_.team > 1;
  const std::string count = plan_.tail ? ", count" : "";
  const auto reuse = [&](const Inst& inst) {
    return plan_.streamed[inst.slot] ? std::string("<once>") : std::string("<again>");
  };
  const auto address = [&](const Inst& inst) {
    return "b" + std::to_string(inst.slot) + " + " +
           index_text(inst.index, false, inst.index.uses_values());
  };
  const auto is_staged = [&](Val v) {
    const Inst& inst = kernel_.insts[v];
    return stores && is_store(inst) && plan_.homes[inst.slot] != Home::registers &&
           (plan_.wide[v] || deferred);
  };
  for (const Val v : insts) {
    const Inst& inst = kernel_.insts[v];
    if (array_[v]) line(value_type(inst.dtype) + " v" + number(v) + "[" + vector + "];");
    if (is_loaded_ahead(v)) line(memory_type(inst.dtype) + " x" + number(v) + "[" + vector + "];");
    if (is_loaded_ahead(v) && !plan_.apart) {
      line("load_vector" + reuse(inst) + "(x" + number(v) + ", " + address(inst) + count + ");");
    }
    if (is_staged(v)) line(memory_type(inst.dtype) + " y" + number(v) + "[" + vector + "];");
  }
  if (plan_.apart && std::ranges::any_of(insts, [&](Val v) { return is_loaded_ahead(v); })) {
    open_lanes();
    for (const Val v : insts)
      if (is_loaded_ahead(v))
        line("x" + number(v) + "[lane] = lane < count ? " + element_text(kernel_.insts[v], true) +
             " : " + memory_type(kernel_.insts[v].dtype) + "();");
    close();
  }
  open_lanes();
  in_lane_ = true;
  for (const Val v : insts) {
    const Inst& inst = kernel_.insts[v];
    if (!is_store(inst))
      write_one(v);
    else if (stores && plan_.homes[inst.slot] == Home::registers)
      line("b" + std::to_string(inst.slot) + "[step][lane] = " + ref(inst.args[0]) + ";");
    else if (is_staged(v))
      line("y" + number(v) + "[lane] = " + ref(inst.args[0]) + ";");
    else if (stores)
      write_store(v, ref(inst.args[0]));
  }
  in_lane_ = false;
  close();
  if (deferred && std::ranges::any_of(insts, is_staged)) sync();
  for (const Val v : insts) {
    const Inst& inst = kernel_.insts[v];
    if (!is_staged(v)) continue;
    if (plan_.wide[v]) {
      line(store_guard() + "store_vector" + reuse(inst) + "(" + address(inst) + ", y" + number(v) +
           count + ");");
      continue;
    }
    open_lanes();
    in_lane_ = true;
    write_store(v, "y" + number(v) + "[lane]");
    in_lane_ = false;
    close();
  }
}

void Emitter::write_outer(const Stage& stage, bool stores) {
  std::vector<Val> insts;
  for (Val v = stage.begin; v < stage.end; ++v) {
    if (plan_.varies[v] && escapes_[v]) array_[v] = true;
    insts.push_back(v);
  }
  write_insts(insts, stores);
}

// What is the same for all inner points comes before the loop over them, if there are any.
void Emitter::write_hoisted(const Stage& stage) {
  std::vector<Val> insts;
  for (Val v = stage.begin; v < stage.end; ++v) {
    if (plan_.inner[v] || kernel_.insts[v].op == Op::reduce) continue;
    if (plan_.varies[v]) array_[v] = true;
    insts.push_back(v);
  }
  write_insts(insts, false);
}

void Emitter::open_points() {
  const int lanes = lanes_are_points() ? plan_.vector : 1;
  const std::string points = product_text(kernel_.inner), team = std::to_string(plan_.team);
  const std::string times = lanes > 1 ? " * " + std::to_string(lanes) : "";
  if (in_scan_) {
    // All threads of the team come to all scans; behind the last point they store nothing.
    open("for (Index first = 0; first < " + points + "; first += " + team + ")");
    line("const bool inside = first + thread < " + points + ";");
    line("const Index point = inside ? first + thread : " + points + " - 1;");
  } else if (plan_.steps > 0) {
    open("SMELT_UNROLL for (int step = 0; step < " + std::to_string(plan_.steps) + "; ++step)");
    line("const Index point = (step * " + team + " + thread)" + times + ";");
    if (plan_.partial_step) line("if (point >= " + points + ") continue;");
  } else {
    const std::string stride = std::to_string(plan_.team * lanes);
    const bool sliced = part_ == Part::slices;
    if (!plan_.serial) line("#pragma unroll 4");
    open("for (Index point = " + std::string(sliced ? "begin + " : "") + "thread" + times +
         "; point < " + (sliced ? "end" : points) + "; point += " + stride + ")");
  }
  declare_dims(lanes > 1 ? "(point / " + std::to_string(lanes) + ")" : "point", outer_,
               kernel_.dims(), plan_.outer_vector ? -1 : plan_.vector_dim);
  if (plan_.tail && lanes_are_points()) count_lanes(points + " - point");
}

// Loads that later stages need again, all of them before anything waits for one.
void Emitter::write_kept(const Stage& stage) {
  std::vector<size_t> first;
  for (size_t i = 0; i < plan_.keeps.size(); ++i)
    if (plan_.keeps[i] >= stage.begin && plan_.keeps[i] < stage.end) first.push_back(i);
  if (first.empty()) return;
  for (const size_t i : first) {
    const Val v = plan_.keeps[i];
    line(memory_type(kernel_.insts[v].dtype) + " kept" + std::to_string(i) + "[" +
         std::to_string(plan_.steps) + "][" + std::to_string(plan_.varies[v] ? plan_.vector : 1) +
         "];");
  }
  open_points();
  for (const size_t i : first) {
    const Val v = plan_.keeps[i];
    const Inst& inst = kernel_.insts[v];
    const std::string to = "kept" + std::to_string(i) + "[step]";
    if (plan_.varies[v] && plan_.wide[v])
      line(std::string("load_vector") + (plan_.streamed[inst.slot] ? "<once>" : "<again>") + "(" +
           to + ", b" + std::to_string(inst.slot) + " + " + index_text(inst.index, false, false) +
           (plan_.tail ? ", count);" : ");"));
    else if (plan_.varies[v])
      line("SMELT_UNROLL for (int lane = 0; lane < " + std::to_string(plan_.vector) + "; ++lane) " +
           to + "[lane] = " +
           (plan_.tail ? "lane < count ? " + element_text(inst, true) + " : " +
                             memory_type(inst.dtype) + "()"
                       : element_text(inst, true)) +
           ";");
    else
      line(to + "[0] = " + element_text(inst, false) + ";");
  }
  close();
}

void Emitter::write_inner(const Stage& stage) {
  const bool hoists = bounds(product(kernel_.inner)).low >= 1;
  if (hoists) write_hoisted(stage);
  std::vector<Val> insts;
  for (Val v = stage.begin; v < stage.end; ++v) {
    const Op op = kernel_.insts[v].op;
    if (op == Op::reduce || op == Op::scan) open_reduction(v);
    if (!hoists || plan_.inner[v] || op == Op::reduce) insts.push_back(v);
  }
  if (part_ == Part::slices) {
    const int64_t step = int64_t{plan_.team} * (plan_.outer_vector ? 1 : plan_.vector);
    const std::string all = std::to_string(plan_.slices * step),
                      points = product_text(kernel_.inner);
    line("const Index length = (" + points + " + " + all + " - 1) / " + all + " * " +
         std::to_string(step) + ";");
    line("const Index begin = blockIdx.y * length;");
    line("const Index end = " + points + " - begin < length ? " + points + " : begin + length;");
  }
  in_inner_ = true;
  in_scan_ = plan_.team > 1 &&
             std::ranges::any_of(insts, [&](Val v) { return kernel_.insts[v].op == Op::scan; });
  write_kept(stage);
  open_points();
  write_insts(insts, true);
  close();
  in_inner_ = in_scan_ = false;
  for (Val v = stage.begin; v < stage.end; ++v) {
    if (kernel_.insts[v].op != Op::reduce) continue;
    close_reduction(v);
    if (part_ == Part::slices) store_partial(v);
  }
}

}  // namespace smelt::cuda
