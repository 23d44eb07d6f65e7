#include "codegen/cuda/emitter.h"

namespace smelt::cuda {

using loops::Reduction;

namespace {

const char* class_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return "Sum";
    case Reduction::product: return "Product";
    case Reduction::min: return "Min";
    case Reduction::max: return "Max";
    case Reduction::argmin: return "ArgMin";
    case Reduction::argmax: return "ArgMax";
    case Reduction::any: return "Any";
    case Reduction::all: return "All";
  }
  return "";
}

}  // namespace

std::string Emitter::reduction_type(Val value) const {
  const Inst& inst = kernel_.insts[value];
  return std::string(class_of(inst.reduction)) + "<" +
         value_type(kernel_.insts[inst.args[0]].dtype) + ">";
}

// One sum for each lane, also where lanes are points: their sums do not wait for each other.
void Emitter::open_reduction(Val value) {
  const std::string type = reduction_type(value);
  if (!has_lanes()) return line(type + "::Value sum" + number(value) + " = " + type + "::none();");
  line(type + "::Value sum" + number(value) + "[" + std::to_string(plan_.vector) + "];");
  line("SMELT_UNROLL for (int lane = 0; lane < " + std::to_string(plan_.vector) + "; ++lane) sum" +
       number(value) + "[lane] = " + type + "::none();");
}

void Emitter::combine(Val value) {
  const Inst& inst = kernel_.insts[value];
  const std::string sum = "sum" + number(value) + (has_lanes() ? "[lane]" : "");
  const bool is_cut = plan_.tail && lanes_are_points();
  const std::string item = ref(inst.args[0]), guard = in_scan_ ? "if (inside) "
                                                      : is_cut ? "if (lane < count) "
                                                               : "";
  const std::string type = reduction_type(value);
  if (loops::gives_position(inst.reduction))
    line(guard + sum + " = " + type + "::next(" + sum + ", " + item + ", " + position_text() +
         ");");
  else
    line(guard + sum + " = " + type + "::both(" + sum + ", " + item + ");");
}

// Leaves what was found by the team in v<n>, of each lane where lanes are outer points.
void Emitter::close_reduction(Val value) {
  const Inst& inst = kernel_.insts[value];
  const std::string type = reduction_type(value), sum = "sum" + number(value);
  const std::string result = value_type(inst.dtype) + " v" + number(value);
  const std::string space = "space" + number(value);
  const auto across = [&](const std::string& one) {
    std::string found = one;
    const int team = part_ == Part::finish ? plan_.finish_team : plan_.team;
    if (part_ != Part::finish && plan_.columns && team > 1)
      found = "reduce_column<" + type + ", " + std::to_string(team) + ", " +
              std::to_string(plan_.width) + ">(" + one + ", " + space + ")";
    else if (team > 1)
      found = "reduce_row<" + type + ", " + std::to_string(team) + ">(" + one + ", " +
              (team > 32 ? space : "nullptr") + ")";
    return found;
  };
  const auto placed = [&](const std::string& one) {
    return loops::gives_position(inst.reduction) ? "place_of(" + one + ")" : one;
  };
  // Slices are stored as they were found, without asking for the place.
  const bool keep = part_ == Part::slices;
  if (has_lanes() && plan_.outer_vector) {
    line((keep ? type + "::Value v" + number(value) : result) + "[" + std::to_string(plan_.vector) +
         "];");
    line("SMELT_UNROLL for (int lane = 0; lane < " + std::to_string(plan_.vector) + "; ++lane) v" +
         number(value) +
         "[lane] = " + (keep ? across(sum + "[lane]") : placed(across(sum + "[lane]"))) + ";");
    array_[value] = true;
    return;
  }
  std::string one = sum;
  if (has_lanes() && part_ != Part::finish) {
    line("SMELT_UNROLL for (int lane = 1; lane < " + std::to_string(plan_.vector) + "; ++lane) " +
         sum + "[0] = " + type + "::both(" + sum + "[0], " + sum + "[lane]);");
    one += "[0]";
  }
  if (keep)
    line("const " + type + "::Value v" + number(value) + " = " + across(one) + ";");
  else
    line("const " + result + " = " + placed(across(one)) + ";");
}

// In the workspace: for each reduction, for each slice, what was found for each outer point.
std::string Emitter::partial_place(Val value, const std::string& slice, bool lane) const {
  std::string point = "item";
  if (plan_.outer_vector)
    point = "(item * " + std::to_string(plan_.vector) + (lane ? " + lane)" : ")");
  return "partial" + number(value) + "[static_cast<i64>(" + slice + ") * points + " + point + "]";
}

void Emitter::store_partial(Val value) {
  const std::string guard = store_guard();
  if (array_[value])
    line(guard + "SMELT_UNROLL for (int lane = 0; lane < " + std::to_string(plan_.vector) +
         "; ++lane) " + partial_place(value, "blockIdx.y", true) + " = " + ref(value) + ";");
  else
    line(guard + partial_place(value, "blockIdx.y", false) + " = v" + number(value) + ";");
}

// The results of a stage, from those of its slices.
void Emitter::combine_slices(const Stage& stage) {
  for (Val v = stage.begin; v < stage.end; ++v) {
    if (kernel_.insts[v].op != Op::reduce) continue;
    const std::string type = reduction_type(v), sum = "sum" + number(v);
    line(type + "::Value " + sum + " = " + type + "::none();");
    line("#pragma unroll 4");
    line("for (int slice = thread; slice < " + std::to_string(plan_.slices) +
         "; slice += " + std::to_string(plan_.finish_team) + ") " + sum + " = " + type + "::both(" +
         sum + ", partial" + number(v) + "[static_cast<i64>(slice) * points + item]);");
    close_reduction(v);
  }
}

}  // namespace smelt::cuda
