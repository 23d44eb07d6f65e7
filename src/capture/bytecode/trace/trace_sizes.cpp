// Sizes that vary. A trace that depends on such a size says so by a guard on the size itself, or on
// a relation between sizes; where it can't be said, all sizes are pinned, and the segment is for
// these alone.
#include "capture/bytecode/trace/trace_sizes.h"

#include <opcode.h>

#include <algorithm>

#include "base/polynomial.h"
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
    symbolic.emplace(dim, known->second);
  }
  log_->vary(value, symbolic);
  sizes.inputs.emplace(value, std::move(symbolic));
}

void TraceSizes::locate_guards() {
  log_->set_size_locator([this] {
    if (!locate) return std::string();
    Break here;
    locate(here);
    return here.file + ":" + std::to_string(here.line);
  });
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
    return Value{result.get(), a.ref == 0 && b.ref == 0
                                   ? 0
                                   : add_scalar(ScalarOp::binary, op, a, b, result.get())};
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
    const Ref ref = add_scalar(ScalarOp::call, call_arg(function), left, right, result.get());
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
  if (!node.object || !PyLong_CheckExact(node.object.get()) || node.late) return std::nullopt;
  if (node.kind == NodeKind::constant) {
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

void TraceSizes::follow_sizes() {
  if (!active() || !sizes.any()) return;
  std::string why;
  const bool ok = log_->follow_sizes([this](ScalarId id) { return size_in(nodes_, id); }, &why);
  if (!ok) return pin_sizes(why);
  take_size_guards();
}

Ref TraceSizes::relation_of(const Guard& guard) {
  const auto side = [&](const Size& size) {
    const Object object = to_object(log_->hint(size));
    hold(object.get());
    return Value{object.get(), number_of(size)};
  };
  return add_scalar(ScalarOp::compare, python_relation(guard.relation), side(guard.left),
                    side(guard.right), Py_True);
}

void TraceSizes::take_size_guards() {
  const std::vector<Guard>& relied = log_->size_guards();
  for (; sizes.guards < relied.size(); ++sizes.guards)
    guard(relation_of(relied[sizes.guards]), kGuardTruth, true);
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
  for (size_t i = 0; i < is_used.size(); ++i)
    described.values.push_back(is_used[i] ? numbers.give(sizes.symbols[i]) : UINT32_MAX);
  for (const ScalarId scalar : wanted.scalars) {
    std::optional<Size> size = size_in(result.nodes, scalar);
    if (size && size->is_known()) size.reset();
    described.scalars.push_back(std::move(size));
  }
}

// What passes and kernels rely on beyond what the ops do.
void TraceSizes::guard_sizes_of_program(TraceResult& result) {
  nodes_ = std::move(result.nodes);
  for (const Guard& guard : result.program->size_guards()) {
    if (std::ranges::find(log_->size_guards(), guard) != log_->size_guards().end()) continue;
    Node& relation = nodes_[relation_of(guard)];
    relation.guards |= kGuardTruth;
    relation.truth = true;
  }
  result.nodes = std::move(nodes_);
}

// Each is what it is from now on. Expressions stay: they are right, and say nothing new.
void TraceSizes::pin_sizes(const std::string& why) {
  if (!sizes.any()) return;
  sizes.refusal = why.empty() ? "sizes can't be followed" : why;
  if (log_enabled(Log::recompiles))
    smelt::log(Log::recompiles, "sizes are fixed: " + sizes.refusal);
  for (Ref ref = 1; ref < nodes_.size(); ++ref)
    if (nodes_[ref].kind == NodeKind::size) guard(ref, kGuardEqual);
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
