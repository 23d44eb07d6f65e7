// Sizes that vary. A trace that depends on such a size says so by a guard on the size itself, or on
// a relation between sizes; where it can't be said, all sizes are pinned, and the segment is for
// these alone.
#include "capture/bytecode/trace/trace_sizes.h"

#include <opcode.h>

#include <algorithm>
#include <unordered_set>

#include "base/polynomial.h"
#include "capture/bytecode/nodes/lazy_elements.h"
#include "capture/bytecode/nodes/number_ops.h"
#include "capture/bytecode/nodes/paths.h"
#include "capture/bytecode/nodes/program_numbers.h"
#include "diagnostics/log.h"

namespace smelt::bytecode {
namespace {

Object to_object(int64_t value) { return Object::steal(PyLong_FromLongLong(value)); }

// min and max as Python has them.
PyObject* builtin_function(const char* name) {
  const Object builtins = Object::steal(PyImport_ImportModule("builtins"));
  return builtins ? PyObject_GetAttrString(builtins.get(), name) : nullptr;
}

int python_relation(Relation relation) {
  switch (relation) {
    case Relation::eq: return Py_EQ;
    case Relation::ne: return Py_NE;
    case Relation::lt: return Py_LT;
    case Relation::le: return Py_LE;
    case Relation::gt: return Py_GT;
    default: return Py_GE;
  }
}

}  // namespace

std::vector<int> TraceSizes::varying_dims(Ref tensor) const {
  if (sizes.dims == nullptr || !sizes.refusal.empty()) return {};
  return sizes.dims->of(nodes_[tensor].object.get(), path_text(nodes_, tensor, code.get()),
                        is_module_state(nodes_, tensor));
}

// Tensors in the slots are known already.
void TraceSizes::vary_sizes(const VaryingDims* dims) {
  sizes.dims = dims;
  const std::vector<Ref> tensor_paths = tensor_paths_;
  for (const Ref ref : tensor_paths) {
    const std::vector<int> varying = varying_dims(ref);
    if (varying.empty()) continue;
    nodes_[ref].tensor = tensors().guard(nodes_[ref].object.get(), varying);
    vary(ref, varying);
  }
}

// A size that is equal to another one now is taken to be so: then kernels can be shared. If it
// turns out otherwise, the sizes at hand differ when that is traced.
void TraceSizes::vary(Ref tensor, std::span<const int> dims) {
  PyObject* object = nodes_[tensor].object.get();
  const LogValue value = log_->value_of(object);
  SymbolicDims symbolic;
  for (const int dim : dims) {
    const int64_t size = tensors().size_of(object, dim);
    Node node;
    node.kind = NodeKind::size;
    node.parent = tensor;
    node.index = dim;
    node.object = to_object(size);
    const std::optional<std::string> mark = sizes.dims->mark(object, dim);
    if (mark && !mark->empty()) node.key = Object::steal(PyUnicode_FromString(mark->c_str()));
    const Ref ref = add(std::move(node));
    guard(tensor, kGuardTensor);
    const auto [known, is_new] = sizes.of_hint.try_emplace(size);
    if (is_new) {
      if (sizes.symbols.empty()) locate_guards();
      known->second = log_->add_size_symbol(size);
      sizes.symbols.push_back(ref);
      sizes.known.emplace(known->second.str(), ref);
    } else {
      const Value here{nodes_[ref].object.get(), ref};
      const Value there{here.object, sizes.symbols[*known->second.as_symbol()]};
      guard(add_scalar(ScalarOp::compare, Py_EQ, here, there, Py_True), kGuardTruth, true);
    }
    sizes.of_ref.emplace(ref, known->second);
    sizes.dims_seen.push_back(
        {*known->second.as_symbol(), path_text(nodes_, ref, code.get()), mark.has_value()});
    symbolic.emplace(dim, known->second);
  }
  log_->vary(value, symbolic);
  sizes.inputs.emplace(value, std::move(symbolic));
}

void TraceSizes::locate_guards() {
  log_->set_size_locator([this] { return where(); });
}

std::string TraceSizes::where() const {
  if (!locate) return {};
  Break here;
  locate(here);
  return here.file + ":" + std::to_string(here.line);
}

FixingSizes::FixingSizes(TraceSizes& trace, const char* reason)
    : trace_(trace), before_(trace.sizes.reason) {
  if (reason != nullptr) trace.sizes.reason = reason;
}
FixingSizes::~FixingSizes() { trace_.sizes.reason = before_; }

// -- what is fixed

namespace {

// The one symbol that the expression is about, where it is 0 now and not for larger sizes: what
// makes it 0 in each run leaves the symbol what it is, or one of a few values. s0 % 2 and
// min(s0, 8) - 8 do not.
std::optional<int> fixed_symbol(const Size& zero, std::vector<int64_t> symbols) {
  constexpr int64_t kFar = 64;
  const int symbol = zero.highest_symbol();
  if (symbol < 0) return std::nullopt;
  for (int other = 0; other < symbol; ++other)
    if (zero.uses_symbol(other)) return std::nullopt;
  int64_t& value = symbols[static_cast<size_t>(symbol)];
  for (const int64_t end = value + 2 * kFar; (value = std::max(value + 1, end - kFar)) < end;)
    if (zero.evaluate(symbols) == 0) return std::nullopt;
  return symbol;
}

}  // namespace

void TraceSizes::note_fixed(const Size& zero, std::string why, std::string where) {
  const std::optional<int> symbol = fixed_symbol(zero, log_->size_symbols().hints());
  if (!symbol) return;
  sizes.fixed.push_back({*symbol, std::move(why), std::move(where), required_.guards.size()});
}

void TraceSizes::note_guard(Ref ref, uint16_t bits, bool truth) {
  if (!sizes.any()) return;
  if ((bits & (kGuardEqual | kGuardSame)) != 0) {
    if (const std::optional<Size> size = size_in(nodes_, ref))
      note_fixed(*size - log_->hint(*size),
                 sizes.reason != nullptr ? sizes.reason : "code that takes its value", where());
    return;
  }
  const Node& node = nodes_[ref];
  if ((bits & kGuardTruth) == 0 || node.kind != NodeKind::scalar || node.op != ScalarOp::compare ||
      node.second == 0)
    return;
  const std::optional<Size> left = size_in(nodes_, node.parent),
                            right = size_in(nodes_, node.second);
  if (!left || !right || (left->is_known() && right->is_known())) return;
  std::string line;
  if (node.where)
    line = text_of(node.where.get());  // it is told already, if it fixes something
  else if (line = where(); node.index == (truth ? Py_EQ : Py_NE))
    note_fixed(*left - *right, "a comparison", line);
  if (!line.empty()) nodes_[ref].where = Object::steal(PyUnicode_FromString(line.c_str()));
}

void TraceSizes::note_relation(const Guard& guard) {
  if (guard.relation != Relation::eq) return;
  const size_t op = guard.where.find(" (");
  const std::string by =
      op == std::string::npos ? "an op" : guard.where.substr(op + 2, guard.where.size() - op - 3);
  note_fixed(guard.left - guard.right, by, guard.where.substr(0, op));
}

std::vector<TraceSizes::FixedDim> TraceSizes::fixed_dims() const {
  std::vector<FixedDim> found;
  std::vector<bool> is_told(sizes.dims_seen.size());
  for (const FixedSize& fixed : sizes.fixed) {
    for (size_t i = 0; i < sizes.dims_seen.size(); ++i) {
      const VariedDim& dim = sizes.dims_seen[i];
      if (dim.symbol != fixed.symbol || is_told[i]) continue;
      is_told[i] = true;
      std::string text = dim.text + " is fixed by " + fixed.why;
      if (!fixed.where.empty()) text += ", " + fixed.where;
      found.push_back({std::move(text),
                       "Write it so that any size will do, or say that this one does not vary: "
                       "smelt.mark_static, or min= and max= of smelt.mark_dynamic",
                       dim.is_marked});
    }
  }
  return found;
}

// -- expressions

Ref TraceSizes::number_of(const Size& size) {
  if (size.is_known()) return 0;
  if (const auto known = sizes.known.find(size.str()); known != sizes.known.end())
    return known->second;
  const auto value_of = [&](const Size& part) {
    const Object object = to_object(log_->hint(part));
    hold(object.get());
    return Value{object.get(), number_of(part)};
  };
  const auto combine = [&](int op, Value a, Value b) {
    const Object result =
        Object::steal(op == NB_ADD         ? PyNumber_Add(a.object, b.object)
                      : op == NB_MULTIPLY  ? PyNumber_Multiply(a.object, b.object)
                      : op == NB_REMAINDER ? PyNumber_Remainder(a.object, b.object)
                                           : PyNumber_FloorDivide(a.object, b.object));
    hold(result.get());
    if (a.ref == 0 && b.ref == 0) return Value{result.get(), 0};
    const bool late = is_late(a.ref) || is_late(b.ref);
    return Value{result.get(), add_scalar(ScalarOp::binary, op, a, b, result.get(), late)};
  };
  const auto value_of_atom = [&](const Atom& atom) -> Value {
    if (atom.kind == Atom::Kind::symbol) {
      const Ref ref = sizes.symbols[static_cast<size_t>(atom.symbol)];
      return {nodes_[ref].object.get(), ref};
    }
    const Value left = value_of(atom.left), right = value_of(atom.right);
    if (atom.kind == Atom::Kind::floor_div) return combine(NB_FLOOR_DIVIDE, left, right);
    if (atom.kind == Atom::Kind::modulo) return combine(NB_REMAINDER, left, right);
    static PyObject* const least = builtin_function("min");
    static PyObject* const most = builtin_function("max");
    PyObject* function = atom.kind == Atom::Kind::min ? least : most;
    const Object result =
        Object::steal(PyObject_CallFunctionObjArgs(function, left.object, right.object, nullptr));
    hold(result.get());
    const Ref ref = add_scalar(ScalarOp::call, call_arg(function), left, right, result.get(),
                               is_late(left.ref) || is_late(right.ref));
    nodes_[ref].key = Object::share(function);
    return {result.get(), ref};
  };
  std::optional<Value> sum;
  for (const Term& term : Polynomial::terms_of(size)) {
    std::optional<Value> product;
    for (const Atom& atom : term.atoms) {
      const Value factor = value_of_atom(atom);
      product = product ? combine(NB_MULTIPLY, *product, factor) : factor;
    }
    if (!product || term.coefficient != 1) {
      const Object coefficient = to_object(term.coefficient);
      hold(coefficient.get());
      const Value factor{coefficient.get(), 0};
      product = product ? combine(NB_MULTIPLY, *product, factor) : factor;
    }
    sum = sum ? combine(NB_ADD, *sum, *product) : *product;
  }
  if (!sum) return 0;
  sizes.known.emplace(size.str(), sum->ref);
  sizes.of_ref.emplace(sum->ref, size);
  return sum->ref;
}

std::optional<Size> TraceSizes::size_in(const std::vector<Node>& nodes, Ref number) const {
  if (number == 0) return std::nullopt;
  if (const auto known = sizes.of_ref.find(number); known != sizes.of_ref.end())
    return known->second;
  const Node& node = nodes[number];
  if (!node.object || !PyLong_CheckExact(node.object.get())) return std::nullopt;
  // Of a finished trace only what it has kept: it may have asked for more behind its end.
  const int guards = &nodes == &nodes_ ? node.asked : node.guards;
  const bool is_fixed = !node.late && (guards & (kGuardEqual | kGuardSame)) != 0;
  if (node.kind == NodeKind::constant || (is_fixed && fits_scalar(node.object.get()))) {
    const Number value = to_number(node.object.get());
    return Size(std::get<int64_t>(value));
  }
  if (node.kind != NodeKind::scalar) return std::nullopt;
  const std::optional<NumberOp> op = number_op(node.op, node.index);
  const std::optional<Size> a = op ? size_in(nodes, node.parent) : std::nullopt;
  const std::optional<Size> b =
      node.second != 0 ? size_in(nodes, node.second) : std::optional(Size(0));
  if (!a || !b) return std::nullopt;
  switch (*op) {
    case NumberOp::add: return *a + *b;
    case NumberOp::sub: return *a - *b;
    case NumberOp::mul: return *a * *b;
    case NumberOp::neg: return Size(0) - *a;
    case NumberOp::min: return min(*a, *b);
    case NumberOp::max: return max(*a, *b);
    case NumberOp::as_int: return *a;
    case NumberOp::floor_div:
    case NumberOp::mod:
      if (!b->is_known() || b->known() == 0) return std::nullopt;  // 0 may come out
      return *op == NumberOp::mod ? modulo(*a, *b) : floor_div(*a, *b);
    default: return std::nullopt;
  }
}

bool TraceSizes::is_size(Ref number) const {
  const std::optional<Size> size = sizes.any() ? size_in(nodes_, number) : std::nullopt;
  return size && !size->is_known();
}

// -- what ops make

bool TraceSizes::may_count() const {
  return active() && sizes.dims != nullptr && sizes.refusal.empty() && guesses.are_allowed &&
         (sizes.any() || guesses.were_wrong);
}

bool TraceSizes::may_be_size(Ref number) {
  if (number != 0 && !is_late(number) && !is_size(number)) return parts_of_size(number).has_value();
  return take_as_size(number);
}

bool TraceSizes::take_as_size(Ref number) {
  if (is_size(number)) return true;
  if (number != 0 && !is_late(number)) return take_number(number);
  if (number == 0 || !may_count()) return false;
  // What it is computed of becomes sizes.
  std::vector<Ref> open{number};
  std::vector<Ref> read;
  for (size_t i = 0; i < open.size(); ++i) {
    const Node& node = nodes_[open[i]];
    if (!node.late || sizes.of_ref.contains(open[i])) continue;
    if (!node.object || !PyLong_CheckExact(node.object.get())) return false;
    if (node.kind != NodeKind::number) {
      open.push_back(node.parent);
      if (node.second != 0) open.push_back(node.second);
      continue;
    }
    const Number now = to_number(node.object.get());
    if (!log_->is_steady_number(node.index) || std::get<int64_t>(now) < 2) return false;
    if (std::ranges::find(read, open[i]) == read.end()) read.push_back(open[i]);
  }
  follow_sizes();
  if (!may_count()) return false;
  for (const Ref ref : read) {
    const int64_t now = std::get<int64_t>(to_number(nodes_[ref].object.get()));
    log_->count_number(nodes_[ref].index);
    add_late(log_->add_size_symbol(now), ref);
  }
  return active() && is_size(number);
}

// A number that the program reads is a size from now on.
void TraceSizes::add_late(const Size& size, Ref number) {
  guesses.any = true;
  add_symbol(size, number);
}

// Sizes 0 and 1 are other programs.
void TraceSizes::add_symbol(const Size& size, Ref number) {
  if (sizes.symbols.empty()) locate_guards();
  sizes.symbols.push_back(number);
  sizes.of_ref.emplace(number, size);
  sizes.known.emplace(size.str(), number);
  const Object least = to_object(2);
  hold(least.get());
  guard(add_scalar(ScalarOp::compare, Py_GE, {nodes_[number].object.get(), number},
                   {least.get(), 0}, Py_True, is_late(number)),
        kGuardTruth, true);
}

// What the number is an expression of: ints of Python's that have been others before, like
// arguments, and what it has computed in a way that sizes have no expression for, int(n * 0.5), are
// symbols; what has not changed so far is what it is. Nothing: it can be no size.
std::optional<TraceSizes::PartsOfSize> TraceSizes::parts_of_size(Ref number) const {
  if (!active() || sizes.dims == nullptr || !sizes.refusal.empty() || !has_changed(number))
    return std::nullopt;
  const auto is_whole = [&](Ref ref) {
    PyObject* object = nodes_[ref].object.get();
    return object != nullptr && PyLong_CheckExact(object) && fits_scalar(object);
  };
  const auto may_be_symbol = [&](Ref ref) {
    return is_whole(ref) && std::get<int64_t>(to_number(nodes_[ref].object.get())) >= 2;
  };
  if (!is_whole(number)) return std::nullopt;
  std::vector<Ref> open{number};
  PartsOfSize parts;
  std::unordered_set<Ref> seen{number};
  bool ok = true;
  for (size_t i = 0; ok && i < open.size(); ++i) {
    const Node& node = nodes_[open[i]];
    if (size_in(nodes_, open[i])) continue;
    if (!has_changed(open[i])) {
      ok = is_whole(open[i]);
      parts.known.push_back(open[i]);
    } else if (node.kind != NodeKind::scalar || !has_expression(node)) {
      ok = may_be_symbol(open[i]);
      parts.symbols.push_back(open[i]);
    } else {
      for (const Ref operand : {node.parent, node.second})
        if (operand != 0 && seen.insert(operand).second) open.push_back(operand);
    }
  }
  if (ok) return parts;
  if (!may_be_symbol(number)) return std::nullopt;
  return PartsOfSize{{number}, {}};
}

// Of whole numbers, one that size_in() has too.
bool TraceSizes::has_expression(const Node& node) const {
  const std::optional<NumberOp> op = number_op(node.op, node.index);
  if (!op) return false;
  const auto is_whole = [&](Ref ref) {
    return ref == 0 || (nodes_[ref].object && PyLong_CheckExact(nodes_[ref].object.get()));
  };
  if (!is_whole(node.parent) || !is_whole(node.second)) return false;
  switch (*op) {
    case NumberOp::add:
    case NumberOp::sub:
    case NumberOp::mul:
    case NumberOp::neg:
    case NumberOp::min:
    case NumberOp::max: return true;
    case NumberOp::floor_div:
    case NumberOp::mod:
      return !has_changed(node.second) && PyObject_IsTrue(nodes_[node.second].object.get()) == 1;
    default: return false;
  }
}

bool TraceSizes::take_number(Ref number) {
  const std::optional<PartsOfSize> parts = parts_of_size(number);
  if (!parts) return false;
  for (const Ref part : parts->known) guard(part, kGuardEqual);
  for (const Ref part : parts->symbols) {
    guard(part, kGuardType);
    const Size size =
        log_->add_size_symbol(std::get<int64_t>(to_number(nodes_[part].object.get())));
    add_symbol(size, part);
    sizes.dims_seen.push_back(
        {*size.as_symbol(), path_text(nodes_, part, code.get()), /*is_marked=*/false});
  }
  return is_size(number);
}

void TraceSizes::take_late_sizes() {
  const std::vector<TensorLog::LateSize> late = log_->late_sizes();
  while (sizes.late < late.size() && active()) {
    const TensorLog::LateSize& known = late[sizes.late++];
    const Object now = to_object(known.now);
    hold(now.get());
    add_late(known.size, number(now.get(), known.item));
  }
}

void TraceSizes::follow_sizes() {
  if (!active() || !sizes.refusal.empty() || !(sizes.any() || log_->counts())) return;
  std::string why;
  const bool ok = log_->follow_sizes([this](ScalarId id) { return size_in(nodes_, id); }, &why);
  take_late_sizes();
  if (!ok) return pin_sizes(why);
  take_size_guards();
}

Ref TraceSizes::relation_of(const Guard& guard) {
  const auto side = [&](const Size& size) {
    const Object object = to_object(log_->hint(size));
    hold(object.get());
    return Value{object.get(), number_of(size)};
  };
  const Value left = side(guard.left), right = side(guard.right);
  const Ref made = add_scalar(ScalarOp::compare, python_relation(guard.relation), left, right,
                              Py_True, is_late(left.ref) || is_late(right.ref));
  if (!guard.where.empty())
    nodes_[made].where = Object::steal(PyUnicode_FromString(guard.where.c_str()));
  return made;
}

void TraceSizes::take_size_guards() {
  const std::vector<Guard>& relied = log_->size_guards();
  for (; sizes.guards < relied.size(); ++sizes.guards) {
    note_relation(relied[sizes.guards]);
    guard(relation_of(relied[sizes.guards]), kGuardTruth, true);
  }
}

// Symbols of which the program makes no use are not asked for.
void TraceSizes::describe_sizes(const TraceResult& result, ProgramRequest& wanted,
                                ProgramNumbers& numbers) {
  VaryingSizes& described = wanted.sizes;
  described.symbols = log_->size_symbols();
  std::vector<bool> is_used(sizes.symbols.size());
  const auto use = [&](const Size& size) {
    for (size_t i = 0; i < is_used.size(); ++i)
      if (size.uses_symbol(static_cast<int>(i))) is_used[i] = true;
  };
  for (const LogValue input : wanted.inputs) {
    const auto known = sizes.inputs.find(input);
    described.inputs.push_back(known == sizes.inputs.end() ? SymbolicDims() : known->second);
    for (const auto& [dim, size] : described.inputs.back()) use(size);
  }
  for (const ScalarId scalar : wanted.scalars)
    if (const std::optional<Size> size = size_in(result.nodes, scalar)) use(*size);
  for (size_t i = 0; i < is_used.size(); ++i) {
    const Ref symbol = sizes.symbols[i];
    const bool is_late = result.nodes[symbol].late;
    described.values.push_back(is_used[i] && !is_late ? numbers.give(symbol) : UINT32_MAX);
    described.late.push_back(is_late && log_->has_number(result.nodes[symbol].index) ? symbol : 0);
    if (described.late.back() != 0) numbers.define(symbol);
  }
  for (const NumberStep& step : wanted.numbers)
    if (const std::optional<Size> size = size_in(result.nodes, step.id); size && !size->is_known())
      described.late_numbers.emplace(step.id, *size);
  for (const ScalarId scalar : wanted.scalars) {
    std::optional<Size> size = size_in(result.nodes, scalar);
    if (size && size->is_known()) size.reset();
    described.scalars.push_back(std::move(size));
  }
}

// What passes and kernels rely on beyond what the ops do.
void TraceSizes::guard_sizes_of_program(TraceResult& result) {
  nodes_ = std::move(result.nodes);
  // A stage that is given what contents decide asks for itself.
  const auto is_late = [&](const Guard& guard) {
    for (size_t i = 0; i < sizes.symbols.size(); ++i)
      if (nodes_[sizes.symbols[i]].late && (guard.left.uses_symbol(static_cast<int>(i)) ||
                                            guard.right.uses_symbol(static_cast<int>(i))))
        return true;
    return false;
  };
  for (const Guard& guard : result.program->size_guards()) {
    if (is_late(guard)) continue;
    if (std::ranges::find(log_->size_guards(), guard) != log_->size_guards().end()) continue;
    note_relation(guard);
    Node& relation = nodes_[relation_of(guard)];
    relation.guards |= kGuardTruth;
    relation.truth = true;
  }
  result.nodes = std::move(nodes_);
}

// Each is what it is from now on. Expressions stay: they are right, and say nothing new.
void TraceSizes::pin_sizes(const std::string& why) {
  if (!sizes.any() && !sizes.are_counted) return;
  sizes.refusal = why.empty() ? "sizes can't be followed" : why;
  const std::vector<Ref> symbols = sizes.symbols;
  for (const Ref symbol : symbols)
    if (nodes_[symbol].late) guard(symbol, kGuardEqual);
  if (log_enabled(Log::recompiles))
    smelt::log(Log::recompiles, "sizes are fixed: " + sizes.refusal);
  for (size_t i = 0; i < sizes.symbols.size(); ++i) {
    const Size symbol = Size::symbol(static_cast<int>(i));
    note_fixed(symbol - log_->hint(symbol), sizes.refusal, where());
  }
  for (Ref ref = 1; ref < nodes_.size(); ++ref)
    if (nodes_[ref].kind == NodeKind::size) guard(ref, kGuardEqual);
}

// Where what an op gave lies may depend on any size: the strides of x[:, :5] do on the columns of x,
// which it has not itself.
void TraceSizes::pin_layout_of(PyObject* tensor) {
  if (!sizes.any() || !active()) return;
  if (!is_born(tensor)) return pin_sizes_of(tensor);
  follow_sizes();
  const std::vector<Ref> symbols = sizes.symbols;
  for (const Ref symbol : symbols)
    if (active()) guard(symbol, kGuardEqual);
}

void TraceSizes::pin_sizes_of(PyObject* tensor) {
  if (!sizes.any() || !active()) return;
  const int rank = tensors().rank_of(tensor);
  for (int dim = 0; dim < rank; ++dim)
    if (const Ref size = size_of(tensor, dim); size != 0) guard(size, kGuardEqual);
}

Ref TraceSizes::size_of(PyObject* tensor, int dim) {
  if (!sizes.any() || !active()) return 0;
  const LogValue value = log_->value_of(tensor);
  if (value < 0) return 0;
  follow_sizes();
  if (!sizes.any() || !active()) return 0;
  const std::optional<Sizes> known = log_->sizes_of(value);
  if (!known) {
    pin_sizes("the sizes of a tensor are not known");
    return 0;
  }
  return number_of((*known)[static_cast<size_t>(dim)]);
}

bool TraceSizes::varies(PyObject* tensor) {
  if (!sizes.any() || !active() || !tensors().is_tensor(tensor)) return false;
  const int rank = tensors().rank_of(tensor);
  for (int dim = 0; dim < rank; ++dim)
    if (size_of(tensor, dim) != 0) return true;
  return false;
}

}  // namespace smelt::bytecode
