#include "capture/bytecode/guards/guard_program.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <span>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "capture/bytecode/cpython/constants.h"
#include "capture/bytecode/cpython/dict_lookup.h"
#include "capture/bytecode/cpython/type_state.h"
#include "capture/bytecode/guards/guard_instructions.h"
#include "capture/bytecode/guards/guard_text.h"
#include "capture/bytecode/guards/guard_tier0.h"
#include "capture/bytecode/nodes/lazy_elements.h"
#include "capture/bytecode/nodes/paths.h"

namespace smelt::bytecode {
namespace {

// So many calls of tier 0 make up for having to make it again.
constexpr uint64_t kWorthIt = 8;
// An object that changed so often although that was not so is looked at by each call.
constexpr uint8_t kStrikes = 2;
// Sets of objects in the slots (the layers of a model, say) that are known at the same time.
constexpr size_t kTiers = 16;

bool is_found(const Node& node) {
  return node.kind != NodeKind::tensor && node.kind != NodeKind::result && !node.late;
}

GuardOp load_of(NodeKind kind) {
  static_assert(static_cast<int>(NodeKind::constant) == static_cast<int>(GuardOp::constant));
  static_assert(static_cast<int>(NodeKind::type) == static_cast<int>(GuardOp::type_of));
  static_assert(static_cast<int>(NodeKind::scalar) == static_cast<int>(GuardOp::scalar));
  return static_cast<GuardOp>(kind);
}

// The registers of a walk through the whole program; releases what was made.
class Walk {
 public:
  explicit Walk(const GuardCode& code) : code_(code), registers_(code.registers) {
    for (const uint32_t index : code.made) registers_[index] = nullptr;
  }
  ~Walk() {
    for (const uint32_t index : code_.made) Py_XDECREF(registers_[index]);
  }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  // The instruction that failed; nullptr: none did. `goes_on`: failures that are passed over.
  template <typename GoesOn>
  const GuardInstruction* run(std::span<PyObject* const> slots, const GoesOn& goes_on) {
    for (const GuardInstruction& instruction : code_.instructions) {
      if (!execute(instruction, slots, registers_.data()) && !goes_on(instruction))
        return &instruction;
    }
    return nullptr;
  }
  const GuardInstruction* run(std::span<PyObject* const> slots) {
    return run(slots, [](const GuardInstruction&) { return false; });
  }
  PyObject** registers() { return registers_.data(); }

 private:
  NoCollection no_collection_;
  const GuardCode& code_;
  Scratch<64> registers_;
};

// Looking these names up in a type gives what it gave, its special methods are what they were, and
// so are its bases.
struct TypeGuard {
  TypeState state;
  unsigned tag = 0;  // for which it is known; 0: for none
  std::vector<const TypeLookup*> lookups;

  PyTypeObject* type() const { return reinterpret_cast<PyTypeObject*>(state.type.get()); }
  const TypeLookup* failed() const {
    for (const TypeLookup* lookup : lookups) {
      if (_PyType_Lookup(type(), lookup->name.get()) != lookup->found.get()) return lookup;
    }
    return nullptr;
  }
  bool holds() {
    if (tag != 0 && type()->tp_version_tag == tag) [[likely]]
      return true;
    if (failed() != nullptr || !has_same_bases(state) || !has_same_methods(state)) return false;
    static PyObject* const any = PyUnicode_InternFromString("__class__");
    if (type()->tp_version_tag == 0) _PyType_Lookup(type(), any);  // gives it one
    tag = type()->tp_version_tag;
    return true;
  }
};

}  // namespace

struct GuardProgram::Impl {
  explicit Impl(const TraceResult& result);

  bool check(std::span<PyObject* const> slots, PyObject** registers, PyObject* function);
  bool walk(std::span<PyObject* const> slots, PyObject** registers, PyObject* function, Tier0* tier,
            Tier0::Blame blame);

  GuardNames names;
  GuardCode code;
  std::vector<Ref> wanted;
  std::vector<TypeLookup> lookups;
  std::vector<TypeGuard> types;
  std::vector<Object> held;
  std::deque<DistinctRegisters> distinct;
  std::vector<std::unique_ptr<Tier0>> tiers;
  size_t guards = 0;
  bool cleared = false;

 private:
  // -- making the program
  void find_wanted(const TraceResult& result);
  std::vector<bool> find_needed(const TraceResult& result) const;
  void add_load(Ref ref);
  void add_checks(Ref ref);
  void add_absent(const AbsentKey& absent);
  void add_alias(const AliasGuard& alias);
  void add_distinct(const DistinctGuard& guard);
  void add_types(std::span<const TypeState> seen);  // when the trace ended
  void add(GuardInstruction instruction);
  uint32_t register_of(Ref ref) const;
  PyObject* hold(PyObject* object);
  int64_t hash_of(PyObject* key) const;

  // -- tier 0
  using Tiers = std::vector<std::unique_ptr<Tier0>>;
  bool should_arm();
  void arm(PyObject* const* registers, PyObject* function, Tier0* old, Tier0::Blame blame,
           Tiers& dropped);
  void drop_abandoned(Tiers& dropped);
  void drop(size_t index, bool strikes, Tiers& dropped);
  void strike(Tier0::Blame blame);

  std::vector<uint32_t> registers_;  // by Ref
  std::vector<uint8_t> strikes_;     // by register
  uint64_t walks_ = 0;               // since tier 0 last held
};

// -- making the program

GuardProgram::Impl::Impl(const TraceResult& result) : lookups(result.lookups) {
  names.nodes = result.nodes;
  names.code = result.code;
  registers_.assign(result.nodes.size(), kNoRegister);
  find_wanted(result);
  const std::vector<bool> needed = find_needed(result);
  std::unordered_map<Ref, std::vector<const AbsentKey*>> absent;
  for (const AbsentKey& key : result.absent) absent[key.dict].push_back(&key);
  for (Ref ref = 1; ref < needed.size(); ++ref) {
    if (!needed[ref]) continue;
    add_load(ref);
    add_checks(ref);
    if (const auto keys = absent.find(ref); keys != absent.end()) {
      for (const AbsentKey* key : keys->second) add_absent(*key);
    }
  }
  for (const AliasGuard& alias : result.aliases) add_alias(alias);
  for (const DistinctGuard& guard : result.distinct) add_distinct(guard);
  for (const Ref ref : wanted) code.wanted.push_back(register_of(ref));
  code.walked.assign(code.registers, false);
  code.unsteady.assign(code.registers, false);
  strikes_.assign(code.registers, 0);
  add_types(result.types);
  guards += lookups.size();
  // What the instructions point to is held; the other objects of the trace may go.
  for (Node& node : names.nodes) {
    node.seen = Object();
    if (node.kind != NodeKind::constant && !(node.guards & (kGuardSame | kGuardEqual))) {
      node.object = Object();
    }
  }
}

void GuardProgram::Impl::find_wanted(const TraceResult& result) {
  std::vector<bool> seen(result.nodes.size(), false);
  const auto want = [&](Ref ref) {
    if (ref == 0 || seen[ref] || !is_found(result.nodes[ref])) return;
    seen[ref] = true;
    wanted.push_back(ref);
  };
  for (const Ref ref : result.program_inputs) want(ref);
  for (const Ref ref : result.program_scalars) want(ref);
  for (const Step& step : result.steps) {
    for (const Operand& operand : step.inputs) want(operand.ref);
  }
  want(result.exit.value.ref);
  for (const Operand& operand : result.exit.slots) want(operand.ref);
}

std::vector<bool> GuardProgram::Impl::find_needed(const TraceResult& result) const {
  std::vector<bool> needed(result.nodes.size(), false);
  for (const Ref ref : wanted) needed[ref] = true;
  for (const AbsentKey& absent : result.absent) needed[absent.dict] = true;
  for (const AliasGuard& alias : result.aliases) needed[alias.a] = needed[alias.b] = true;
  for (const DistinctGuard& guard : result.distinct) {
    for (const Ref ref : guard.changed) needed[ref] = true;
    for (const Ref ref : guard.others) needed[ref] = true;
  }
  for (Ref ref = static_cast<Ref>(result.nodes.size()); ref-- > 1;) {
    const Node& node = result.nodes[ref];
    if (!is_found(node)) {
      needed[ref] = false;
      continue;
    }
    if (node.guards != 0) needed[ref] = true;
    if (!needed[ref]) continue;
    for (const Ref parent : {node.parent, node.second}) {
      if (parent == 0) continue;
      SMELT_CHECK(parent < ref && is_found(result.nodes[parent]),
                  "the path to a guarded object goes through one that the trace made");
      needed[parent] = true;
    }
  }
  return needed;
}

uint32_t GuardProgram::Impl::register_of(Ref ref) const {
  SMELT_CHECK(ref < registers_.size() && registers_[ref] != kNoRegister,
              "a guard is on an object that has no path");
  return registers_[ref];
}

PyObject* GuardProgram::Impl::hold(PyObject* object) {
  if (object != nullptr) held.push_back(Object::share(object));
  return object;
}

// Of the user's __hash__ too, where a key has one: here, once, and never by a check.
int64_t GuardProgram::Impl::hash_of(PyObject* key) const {
  const Py_hash_t hash = PyObject_Hash(key);
  if (hash == -1) PyErr_Clear();
  return hash;
}

void GuardProgram::Impl::add(GuardInstruction instruction) {
  for (const uint32_t used : {instruction.first, instruction.second}) {
    if (used != kNoRegister) code.depended[used] = true;
  }
  if (!instruction.is_load()) ++guards;
  code.instructions.push_back(instruction);
}

void GuardProgram::Impl::add_load(Ref ref) {
  const Node& node = names.nodes[ref];
  GuardInstruction load{.op = load_of(node.kind), .scalar_op = node.op, .ref = ref};
  if (node.parent != 0) load.first = register_of(node.parent);
  if (node.second != 0) load.second = register_of(node.second);
  load.number = node.index;
  load.object = node.key.get();
  if (node.kind == NodeKind::constant) load.object = node.object.get();
  if (node.kind == NodeKind::dict_item) load.number = hash_of(load.object);
  if (node.kind == NodeKind::attribute) {
    const Node& parent = names.nodes[node.parent];
    SMELT_CHECK(parent.object, "the object of an attribute is not known");
    load.type = parent.type();
    hold(reinterpret_cast<PyObject*>(load.type));
    load.other = hold(_PyType_Lookup(load.type, load.object));
  }
  const bool has_parent = node.kind == NodeKind::constant || node.kind == NodeKind::slot ||
                          node.kind == NodeKind::scalar || node.parent != 0;
  SMELT_CHECK(has_parent, "a path has no beginning");
  load.target = registers_[ref] = code.registers++;
  code.depended.push_back(false);
  if (load.makes()) code.made.push_back(load.target);
  add(load);
}

void GuardProgram::Impl::add_checks(Ref ref) {
  const Node& node = names.nodes[ref];
  GuardInstruction check{.ref = ref, .first = register_of(ref)};
  PyObject* object = node.object.get();
  const auto add_if = [&](uint16_t bit, GuardOp op, PyObject* expected) {
    if (!(node.guards & bit)) return;
    check.op = op;
    check.object = expected;
    add(check);
  };
  check.number = node.length;
  check.expected = node.truth;
  check.tensor = node.tensor.get();
  // Identity first: tier 0 then knows the object.
  add_if(kGuardSame, GuardOp::same, object);
  if ((node.guards & kGuardType) && !(node.guards & kGuardEqual)) {
    SMELT_CHECK(object != nullptr, "the type of an object is guarded that is not known");
    add_if(kGuardType, GuardOp::type, hold(reinterpret_cast<PyObject*>(node.type())));
  }
  add_if(kGuardEqual, GuardOp::equal, object);
  add_if(kGuardLength, GuardOp::length, nullptr);
  add_if(kGuardPosition, GuardOp::position, node.keys.get());
  add_if(kGuardTensor, GuardOp::tensor, nullptr);
  add_if(kGuardKeys, GuardOp::keys, node.keys.get());
  add_if(kGuardTruth, GuardOp::truth, nullptr);
  add_if(kGuardSet, GuardOp::set, node.keys.get());
  if (node.guards & kGuardFunction) {
    SMELT_CHECK(object != nullptr && PyFunction_Check(object),
                "a function guard on another object");
    check.other = hold(PyFunction_GET_GLOBALS(object));
    PyObject* code = node.seen ? node.seen.get() : PyFunction_GET_CODE(object);
    add_if(kGuardFunction, GuardOp::function, hold(code));
  }
}

void GuardProgram::Impl::add_absent(const AbsentKey& absent) {
  PyObject* key = hold(absent.key.get());
  add({.op = GuardOp::absent,
       .ref = absent.dict,
       .first = register_of(absent.dict),
       .number = hash_of(key),
       .object = key});
}

void GuardProgram::Impl::add_alias(const AliasGuard& alias) {
  add({.op = GuardOp::alias,
       .expected = alias.same,
       .ref = alias.a,
       .first = register_of(alias.a),
       .second = register_of(alias.b),
       .number = alias.b});
}

void GuardProgram::Impl::add_distinct(const DistinctGuard& guard) {
  DistinctRegisters& registers = distinct.emplace_back();
  const auto take = [&](const std::vector<Ref>& refs, std::vector<uint32_t>& into) {
    for (const Ref ref : refs) {
      into.push_back(register_of(ref));
      code.depended[into.back()] = true;
    }
  };
  take(guard.changed, registers.changed);
  take(guard.others, registers.others);
  add({.op = GuardOp::distinct,
       .ref = guard.changed[0],
       .first = registers.changed[0],
       .distinct = &registers});
}

void GuardProgram::Impl::add_types(std::span<const TypeState> seen) {
  std::unordered_map<PyObject*, const TypeState*> known;
  for (const TypeState& state : seen) known.emplace(state.type.get(), &state);
  std::unordered_map<PyObject*, size_t> index;
  const auto guard_of = [&](PyObject* type) -> TypeGuard& {
    const auto [at, is_new] = index.emplace(type, types.size());
    if (is_new) {
      const auto found = known.find(type);
      types.push_back({found != known.end() ? *found->second
                                            : type_state(reinterpret_cast<PyTypeObject*>(type)),
                       0,
                       {}});
    }
    return types[at->second];
  };
  for (const TypeLookup& lookup : lookups) guard_of(lookup.type.get()).lookups.push_back(&lookup);
  for (const GuardInstruction& instruction : code.instructions) {
    if (instruction.op != GuardOp::type && instruction.op != GuardOp::same) continue;
    PyTypeObject* type = names.nodes[instruction.ref].type();
    if (can_change(type)) guard_of(hold(reinterpret_cast<PyObject*>(type)));
  }
}

// -- checking

bool GuardProgram::Impl::check(std::span<PyObject* const> slots, PyObject** registers,
                               PyObject* function) {
  if (cleared) return false;
  for (TypeGuard& type : types) {
    if (!type.holds()) return false;
  }
  for (const auto& tier : tiers) {
    if (!tier->is_for(slots)) continue;
    Tier0::Blame blame;
    if (tier->check(slots, registers, &blame)) {
      ++tier->hits;
      walks_ = 0;
      return true;
    }
    return walk(slots, registers, function, tier.get(), blame);
  }
  return walk(slots, registers, function, nullptr, {});
}

bool GuardProgram::Impl::walk(std::span<PyObject* const> slots, PyObject** registers,
                              PyObject* function, Tier0* tier, Tier0::Blame blame) {
  Tiers dropped;  // released last: that may run the user's code
  Walk walk(code);
  if (walk.run(slots) != nullptr) return false;
  for (size_t i = 0; i < code.wanted.size(); ++i) {
    registers[i] = Py_NewRef(walk.registers()[code.wanted[i]]);
  }
  if (should_arm()) arm(walk.registers(), function, tier, blame, dropped);
  return true;
}

// Less and less often if tier 0 never holds.
bool GuardProgram::Impl::should_arm() {
  ++walks_;
  return Tier0::kPossible && (walks_ <= kTiers || std::has_single_bit(walks_));
}

void GuardProgram::Impl::arm(PyObject* const* registers, PyObject* function, Tier0* old,
                             Tier0::Blame blame, Tiers& dropped) {
  drop_abandoned(dropped);
  const auto is_old = [&](const auto& tier) { return tier.get() == old; };
  if (const auto at = std::find_if(tiers.begin(), tiers.end(), is_old); at != tiers.end()) {
    if (old->hits < kWorthIt) strike(blame);
    drop(at - tiers.begin(), false, dropped);
  }
  if (tiers.size() == kTiers) drop(0, tiers[0]->hits == 0, dropped);
  tiers.push_back(std::make_unique<Tier0>(code, registers, function));
}

// An object in a slot that is gone will not come again: a sign that the slot has another one in
// each call.
void GuardProgram::Impl::drop_abandoned(Tiers& dropped) {
  for (size_t i = tiers.size(); i-- > 0;) {
    bool abandoned = false;
    for (const auto& anchor : tiers[i]->anchors()) {
      if (anchor.get() != nullptr) continue;
      abandoned = true;
      if (tiers[i]->hits < kWorthIt) strike({anchor.index});
    }
    if (abandoned) drop(i, false, dropped);
  }
}

void GuardProgram::Impl::drop(size_t index, bool strikes, Tiers& dropped) {
  if (strikes) {
    for (const auto& anchor : tiers[index]->anchors()) strike({anchor.index});
  }
  dropped.push_back(std::move(tiers[index]));
  tiers.erase(tiers.begin() + static_cast<ptrdiff_t>(index));
}

void GuardProgram::Impl::strike(Tier0::Blame blame) {
  if (blame.index == kNoRegister) return;
  if (strikes_[blame.index] < kStrikes && ++strikes_[blame.index] < kStrikes) return;
  (blame.items ? code.unsteady : code.walked)[blame.index] = true;
}

// -- the class

GuardProgram::GuardProgram(const TraceResult& result) : impl_(std::make_unique<Impl>(result)) {}

GuardProgram::~GuardProgram() = default;

const std::vector<Ref>& GuardProgram::wanted() const { return impl_->wanted; }

bool GuardProgram::check(PyObject* const* slots, size_t count, PyObject** registers,
                         PyObject* function) {
  return impl_->check({slots, count}, registers, function);
}

std::string GuardProgram::explain(PyObject* const* slots, size_t count) const {
  if (impl_->cleared) return "the guards are gone";
  for (const TypeGuard& type : impl_->types) {
    if (const TypeLookup* failed = type.failed(); failed != nullptr) {
      return lookup_failure(*failed, _PyType_Lookup(type.type(), failed->name.get()));
    }
    if (!has_same_bases(type.state))
      return std::string("the bases of ") + type.type()->tp_name + " are others";
    if (!has_same_methods(type.state))
      return std::string("the special methods of ") + type.type()->tp_name + " are others";
  }
  Walk walk(impl_->code);
  const GuardInstruction* failed = walk.run({slots, count});
  return failed != nullptr ? guard_failure(impl_->names, *failed, walk.registers()) : "";
}

namespace {

// The number was part of what was traced, and is another one of its type now.
bool is_another_number(const GuardInstruction& failed, Walk& walk) {
  return failed.op == GuardOp::equal && fits_scalar(failed.object) &&
         Py_TYPE(walk.registers()[failed.first]) == Py_TYPE(failed.object);
}

bool is_of_other_sizes(const GuardInstruction& failed, Walk& walk) {
  if (failed.is_load() || failed.op != GuardOp::tensor) return false;
  PyObject* object = walk.registers()[failed.first];
  return tensors().is_tensor(object) && !failed.tensor->changed_sizes(object).empty();
}

}  // namespace

std::vector<std::string> GuardProgram::changed_numbers(PyObject* const* slots, size_t count) const {
  std::vector<std::string> changed;
  if (impl_->cleared) return changed;
  const GuardNames& names = impl_->names;
  Walk walk(impl_->code);
  walk.run({slots, count}, [&](const GuardInstruction& failed) {
    if (is_of_other_sizes(failed, walk)) return true;
    if (!is_another_number(failed, walk)) return false;
    for (const Ref ref : paths_behind(names.nodes, failed.ref))
      changed.push_back(path_text(names.nodes, ref, names.code.get()));
    return true;
  });
  return changed;
}

std::vector<GuardProgram::ChangedSize> GuardProgram::changed_sizes(PyObject* const* slots,
                                                                   size_t count) const {
  std::vector<ChangedSize> changed;
  if (impl_->cleared) return changed;
  const GuardNames& names = impl_->names;
  Walk walk(impl_->code);
  walk.run({slots, count}, [&](const GuardInstruction& failed) {
    if (is_another_number(failed, walk)) return true;
    if (!is_of_other_sizes(failed, walk)) return false;
    const std::vector<int> dims = failed.tensor->changed_sizes(walk.registers()[failed.first]);
    const std::string path = path_text(names.nodes, failed.ref, names.code.get());
    for (const int dim : dims) changed.push_back({path, dim});
    return true;
  });
  return changed;
}

bool GuardProgram::holds_for_other_sizes(PyObject* const* slots, size_t count) const {
  if (impl_->cleared) return false;
  Walk walk(impl_->code);
  // A guard names sizes and strides last: all else is as it was then.
  const auto is_size = [&](const GuardInstruction& failed) {
    if (failed.op != GuardOp::tensor) return false;
    PyObject* object = walk.registers()[failed.first];
    if (!tensors().is_tensor(object)) return false;
    const std::string difference = failed.tensor->difference(object);
    return difference.starts_with("size ") || difference.starts_with("stride ");
  };
  return walk.run({slots, count}, is_size) == nullptr;
}

size_t GuardProgram::size() const { return impl_->guards; }

std::vector<std::string> GuardProgram::lines() const {
  std::vector<std::string> lines;
  for (const GuardInstruction& instruction : impl_->code.instructions) {
    if (!instruction.is_load()) lines.push_back(guard_line(impl_->names, instruction));
  }
  for (const TypeLookup& lookup : impl_->lookups) lines.push_back(lookup_line(lookup));
  return lines;
}

int GuardProgram::traverse(visitproc visit, void* arg) const {
  Py_VISIT(impl_->names.code.get());
  for (const Node& node : impl_->names.nodes) {
    Py_VISIT(node.key.get());
    Py_VISIT(node.object.get());
    Py_VISIT(node.keys.get());
  }
  for (const TypeLookup& lookup : impl_->lookups) {
    Py_VISIT(lookup.type.get());
    Py_VISIT(lookup.name.get());
    Py_VISIT(lookup.found.get());
  }
  for (const Object& object : impl_->held) Py_VISIT(object.get());
  for (const TypeGuard& type : impl_->types) {
    Py_VISIT(type.state.type.get());
    Py_VISIT(type.state.bases.get());
    for (const Object& method : type.state.methods) Py_VISIT(method.get());
  }
  for (const auto& tier : impl_->tiers) {
    if (const int stop = tier->traverse(visit, arg); stop != 0) return stop;
  }
  return 0;
}

void GuardProgram::clear() {
  // Moved out first: releasing objects may run code that comes back here.
  const GuardNames names = std::exchange(impl_->names, {});
  const auto lookups = std::exchange(impl_->lookups, {});
  const auto held = std::exchange(impl_->held, {});
  const auto tiers = std::exchange(impl_->tiers, {});
  const auto types = std::exchange(impl_->types, {});
  impl_->code = {};
  impl_->cleared = true;
}

}  // namespace smelt::bytecode
