#include "loops/builder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "loops/hash.h"
#include "loops/scalar.h"

namespace smelt::loops {
namespace {

std::string name_of(Val value) { return "v" + std::to_string(value); }

}  // namespace

Builder::Builder(Kernel& kernel) : kernel_(kernel), hidden_(kernel.insts.size(), false) {
  for (const Stage& stage : kernel.stages) {
    if (!stage.inner) continue;
    bool current = &stage == &kernel.stages.back();
    for (Val v = stage.begin; v < stage.end; ++v)
      hidden_[v] = (kernel.insts[v].op == Op::reduce) == current;
  }
  last_write_.assign(kernel.buffers.size(), static_cast<Val>(kernel.insts.size()) - 1);
}

Extents Builder::extents() const {
  // Kept, since the answer points to it; dimensions may have been added since.
  bool current = extents_.size() == static_cast<size_t>(kernel_.dims());
  for (int d = 0; current && d < kernel_.dims(); ++d) current = extents_[d] == kernel_.extent(d);
  if (!current) extents_ = kernel_.extents();
  return {extents_};
}

int32_t Builder::add_buffer(DType dtype, Buffer::Kind kind, Size elements) {
  SMELT_CHECK(is_supported(dtype),
              "a kernel has no buffers of " + std::string(smelt::name_of(dtype)));
  kernel_.buffers.push_back({dtype, kind, std::move(elements)});
  return static_cast<int32_t>(kernel_.buffers.size()) - 1;
}

void Builder::begin_stage(bool inner) {
  auto next = static_cast<Val>(kernel_.insts.size());
  if (!kernel_.stages.empty()) {
    Stage& last = kernel_.stages.back();
    if (last.begin == last.end) {
      last.inner = inner;
      return;
    }
    if (last.inner) {
      for (Val v = last.begin; v < last.end; ++v) hidden_[v] = kernel_.insts[v].op != Op::reduce;
      std::erase_if(seen_, [this](const auto& entry) { return hidden_[entry.second]; });
    }
  }
  kernel_.stages.push_back({inner, next, next});
}

void Builder::check_value(Val value) const {
  SMELT_CHECK(value >= 0 && static_cast<size_t>(value) < kernel_.insts.size(),
              name_of(value) + " does not exist");
  SMELT_CHECK(!hidden_[value], name_of(value) + " is not seen in this stage");
}

void Builder::check_slot(int32_t buffer) const {
  SMELT_CHECK(buffer >= 0 && static_cast<size_t>(buffer) < kernel_.buffers.size(),
              "there is no buffer b" + std::to_string(buffer));
}

void Builder::check_index(const Index& index) const {
  int dims = in_inner_stage() ? kernel_.dims() : static_cast<int>(kernel_.outer.size());
  for (const Term& term : index.terms()) {
    if (term.atom.inner) {
      check_index(*term.atom.inner);
    } else if (term.atom.kind == Atom::Kind::value) {
      check_value(term.atom.id);
      SMELT_CHECK(dtype(term.atom.id) == DType::i64, "an index is made of i64 values");
    } else {
      SMELT_CHECK(term.atom.id >= 0 && term.atom.id < dims,
                  "the stage does not run over i" + std::to_string(term.atom.id));
    }
  }
}

// Memory that the kernel writes is read again after each write, and in each stage: other inner
// points may have written it.
bool Builder::may_share(Val earlier, const Inst& inst) const {
  if (!same(kernel_.insts[earlier], inst)) return false;
  if (inst.op != Op::load || kernel_.buffers[inst.slot].kind == Buffer::Kind::input) return true;
  auto slot = static_cast<size_t>(inst.slot);
  Val last_write = slot < last_write_.size() ? last_write_[slot] : -1;
  return earlier >= kernel_.stages.back().begin && earlier > last_write;
}

Val Builder::push(Inst inst) {
  SMELT_CHECK(!kernel_.stages.empty(), "an instruction stands in a stage, and none was begun");
  auto value = static_cast<Val>(kernel_.insts.size());
  // A reduction is finished at the end of its stage.
  hidden_.push_back(inst.op == Op::reduce);
  kernel_.insts.push_back(std::move(inst));
  kernel_.stages.back().end = value + 1;
  return value;
}

Val Builder::append(Inst inst) {
  Hash hash;
  hash.add(inst);
  auto [begin, end] = seen_.equal_range(hash.value());
  for (auto entry = begin; entry != end; ++entry) {
    if (may_share(entry->second, inst)) return entry->second;
  }
  Val value = push(std::move(inst));
  seen_.emplace(hash.value(), value);
  return value;
}

Val Builder::constant(DType dtype, double number) {
  SMELT_CHECK(is_supported(dtype),
              "a kernel has no values of " + std::string(smelt::name_of(dtype)));
  if (is_half(dtype)) return append_cast(constant(DType::f32, round_to(dtype, number)), dtype);
  Inst inst{.op = Op::constant, .dtype = dtype};
  if (is_floating(dtype)) {
    inst.number = round_to(dtype, number);
  } else {
    SMELT_CHECK(dtype == DType::b8 || number == std::trunc(number),
                std::to_string(number) + " is no integer");
    inst.integer = make_scalar(dtype, number).integer;
  }
  return append(std::move(inst));
}

Val Builder::constant(DType dtype, int64_t integer) {
  if (is_floating(dtype)) return constant(dtype, make_scalar(dtype, integer).number);
  SMELT_CHECK(is_supported(dtype),
              "a kernel has no values of " + std::string(smelt::name_of(dtype)));
  return append({.op = Op::constant, .dtype = dtype, .integer = wrap_to(dtype, integer)});
}

Val Builder::param(int32_t slot, DType dtype) {
  SMELT_CHECK(slot >= 0, "a parameter has no negative number");
  SMELT_CHECK(is_supported(dtype),
              "a kernel has no values of " + std::string(smelt::name_of(dtype)));
  if (is_half(dtype)) return cast(param(slot, DType::f32), dtype);
  kernel_.params = std::max(kernel_.params, slot + 1);
  return append({.op = Op::param, .dtype = dtype, .slot = slot});
}

Val Builder::index(const Index& index) {
  if (index.is_constant() && index.constant().is_known())
    return constant(DType::i64, index.constant().known());
  const std::vector<Term>& terms = index.terms();
  if (terms.size() == 1 && terms[0].atom.kind == Atom::Kind::value && terms[0].stride.is(1) &&
      index.constant().is(0))
    return terms[0].atom.id;
  check_index(index);
  return append({.op = Op::index, .dtype = DType::i64, .index = index});
}

Val Builder::load(int32_t buffer, const Index& index) {
  check_slot(buffer);
  check_index(index);
  return append(
      {.op = Op::load, .dtype = kernel_.buffers[buffer].dtype, .slot = buffer, .index = index});
}

void Builder::write(Op op, int32_t buffer, const Index& index, Val value, Reduction reduction) {
  check_slot(buffer);
  check_index(index);
  SMELT_CHECK(kernel_.buffers[buffer].kind != Buffer::Kind::input, "an input is not written");
  DType dtype = kernel_.buffers[buffer].dtype;
  Val written = cast(value, dtype);
  if (last_write_.size() < kernel_.buffers.size()) last_write_.resize(kernel_.buffers.size(), -1);
  last_write_[buffer] = push({.op = op,
                              .dtype = dtype,
                              .args = {written, -1, -1},
                              .slot = buffer,
                              .index = index,
                              .reduction = reduction});
}

void Builder::store(int32_t buffer, const Index& index, Val value) {
  write(Op::store, buffer, index, value, Reduction::sum);
}

void Builder::accumulate(int32_t buffer, const Index& index, Val value, Reduction reduction) {
  SMELT_CHECK(is_running(reduction),
              "memory is not combined with by " + std::string(loops::name_of(reduction)));
  write(Op::accumulate, buffer, index, value, reduction);
}

Val Builder::check(Val value, const Size& bound) {
  value = cast(value, DType::i64);
  const Inst& inst = kernel_.insts[value];
  Index known = inst.op == Op::constant ? Index(inst.integer) : inst.index;
  bool positional = inst.op == Op::constant || inst.op == Op::index;
  if (positional && known.lies_below(bound, extents())) return value;
  return append({.op = Op::check, .dtype = DType::i64, .args = {value, -1, -1}, .bound = bound});
}

Val Builder::reduce(Reduction reduction, Val value) {
  check_value(value);
  SMELT_CHECK(in_inner_stage(), "only an inner stage reduces");
  bool logical = reduction == Reduction::any || reduction == Reduction::all;
  SMELT_CHECK(logical ? dtype(value) == DType::b8 : accepts(Op::add, dtype(value)),
              std::string(loops::name_of(reduction)) + " of " +
                  std::string(smelt::name_of(dtype(value))) + " is not defined");
  return append({.op = Op::reduce,
                 .dtype = gives_position(reduction) ? DType::i64 : dtype(value),
                 .args = {value, -1, -1},
                 .reduction = reduction});
}

Val Builder::scan(Reduction reduction, Val value) {
  check_value(value);
  SMELT_CHECK(in_inner_stage(), "only an inner stage scans");
  SMELT_CHECK(is_running(reduction) && accepts(Op::add, dtype(value)),
              "a scan by " + std::string(loops::name_of(reduction)) + " of " +
                  std::string(smelt::name_of(dtype(value))) + " is not defined");
  return append(
      {.op = Op::scan, .dtype = dtype(value), .args = {value, -1, -1}, .reduction = reduction});
}

Val Builder::append_cast(Val value, DType dtype) {
  return append({.op = Op::cast, .dtype = dtype, .args = {value, -1, -1}});
}

Val Builder::cast(Val value, DType to) {
  check_value(value);
  SMELT_CHECK(is_supported(to), "a kernel has no values of " + std::string(smelt::name_of(to)));
  if (Val folded = fold_cast(value, to); folded >= 0) return folded;
  DType from = dtype(value);
  if ((is_half(to) || is_half(from)) && from != DType::f32 && to != DType::f32)
    return cast(cast(value, DType::f32), to);
  return append_cast(value, to);
}

Val Builder::op(Op op, Val a, Val b, Val c) {
  const OpFacts& facts = facts_of(op);
  std::string name(facts.name);
  SMELT_CHECK(facts.typing != Typing::other || op == Op::select, name + " has its own function");
  std::array<Val, 3> args = {a, b, c};
  for (int i = 0; i < 3; ++i) {
    SMELT_CHECK((args[i] >= 0) == (i < facts.arguments), name + " has another number of arguments");
    if (args[i] >= 0) check_value(args[i]);
  }
  int first = op == Op::select ? 1 : 0;
  DType type = dtype(args[first]);
  for (int i = first; i < facts.arguments; ++i) {
    SMELT_CHECK(dtype(args[i]) == type, name + " of " + std::string(smelt::name_of(type)) +
                                            " and " + std::string(smelt::name_of(dtype(args[i]))));
  }
  if (op == Op::select) {
    SMELT_CHECK(dtype(a) == DType::b8, "a select asks a b8");
    if (Val folded = fold_select(a, b, c); folded >= 0) return folded;
    if (is_half(type)) return cast(this->op(op, a, cast(b, DType::f32), cast(c, DType::f32)), type);
    return append({.op = op, .dtype = type, .args = args});
  }
  SMELT_CHECK(accepts(op, type), name + " of " + std::string(smelt::name_of(type)));
  if (Val folded = simpler(op, a, b); folded >= 0) return folded;
  bool extreme = op == Op::min || op == Op::max;  // of floating zeros the first
  bool commutes = op == Op::add || op == Op::mul || (extreme && !is_floating(type)) ||
                  op == Op::bit_and || op == Op::bit_or || op == Op::bit_xor || op == Op::eq ||
                  op == Op::ne;
  if (commutes && a > b) std::swap(args[0], args[1]);
  return append(
      {.op = op, .dtype = facts.typing == Typing::compare ? DType::b8 : type, .args = args});
}

Val Builder::random(Op op, Val key, Val stream, Val place) {
  SMELT_CHECK(op == Op::random_bits || op == Op::random_normal, "no random number");
  for (const Val value : {key, stream, place}) {
    check_value(value);
    SMELT_CHECK(dtype(value) == DType::i64, "random numbers are counted in i64");
  }
  return append({.op = op,
                 .dtype = op == Op::random_bits ? DType::i64 : DType::f32,
                 .args = {key, stream, place}});
}

Index Builder::as_index(Val value) {
  value = cast(value, DType::i64);
  const Inst& inst = kernel_.insts[value];
  if (inst.op == Op::constant) return inst.integer;
  if (inst.op == Op::index) return inst.index;
  return Index::value(value);
}

}  // namespace smelt::loops
