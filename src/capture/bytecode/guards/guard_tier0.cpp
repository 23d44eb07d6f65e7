// Everything below an object that is the same one follows from few words in memory:
//
//   instance     ob_type (__class__ can be assigned), the pointer to its __dict__
//   dict         ma_version_tag, unique in the process and new after each change: the same tag, the
//                same values, keys, order and length
//   type         tp_version_tag, new when it or a base changes; 0 means none
//   list, cell   no version: length, buffer, and the pointer itself
//   weakref      the pointer itself, cleared when the object goes
//   function     the pointers to __code__, __defaults__, __kwdefaults__
//   tuple, bound method, __closure__    nothing, they don't change
//   tensor       its TensorGuard
//
// So a model costs one comparison for each dict that was read. What begins with an object in a slot
// (an anchor) or a constant is `known` by this; the rest is walked as in tier 1.
//
// Life. Anchors are known by weak references: to themselves; of a cell, to the function that the
// frame runs, whose closure has it (a frame's own cells are made by each call, and are none). An
// object that knows no weak references is none either: to hold it would keep what a call was given,
// and its address may be another one's. Types are held. What lies below is not, so that a
// model's old parts go when they are replaced: the conditions stand in the order of the paths, and
// each is only read if those before it held, which means that the object it lies in is still where
// it was found. When a dict's version is another one but its values are at the old addresses
// (renew()), an address may have been used again for another object. Hence pin(): an object for
// which more than its own conditions is implied by the address (an int's value, a tuple's items) is
// held; for the others ob_type is a condition.
//
// Rules for changes: a condition on a node comes behind those of its parent; nothing is implied by
// an address that is neither held nor followed by conditions on all that matters; tag 0 is never
// equal.
#include "capture/bytecode/guards/guard_tier0.h"

#include <algorithm>
#include <optional>

#include "capture/bytecode/cpython/constants.h"
#include "capture/bytecode/cpython/dict_lookup.h"

namespace smelt::bytecode {
namespace {

static_assert(sizeof(void*) == sizeof(uint64_t));

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
// The low bits (watchers, 3.12) are compared too: they hardly ever change.
const uint64_t* version_of(PyObject* dict) {
  return &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
}
#pragma GCC diagnostic pop

bool is_heap_instance(PyObject* object) {
  return (Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0;
}

// Objects that are handed in again and again: models, functions, types. Containers and scalars are
// mostly made for the call.
bool can_anchor(PyObject* object) {
  if (object == nullptr || is_atom(object) || tensors().is_tensor(object)) return false;
  return is_heap_instance(object) || PyFunction_Check(object) || PyType_Check(object) ||
         PyModule_Check(object) || PyCFunction_Check(object);
}

bool has_in_closure(PyObject* function, PyObject* cell) {
  if (function == nullptr || !PyFunction_Check(function)) return false;
  PyObject* closure = PyFunction_GET_CLOSURE(function);
  if (closure == nullptr) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(closure); ++i)
    if (PyTuple_GET_ITEM(closure, i) == cell) return true;
  return false;
}

}  // namespace

Tier0::Tier0(const GuardCode& code, PyObject* const* registers, PyObject* function)
    : code_(code),
      function_(function),
      known_(code.registers, nullptr),
      types_(code.registers, nullptr) {
  for (const uint32_t index : code.wanted) compact(index);
  for (const GuardInstruction& instruction : code.instructions) add(instruction, registers);
  finish();
}

void Tier0::add(const GuardInstruction& instruction, PyObject* const* registers) {
  if (!instruction.is_load()) {
    if (knows_all(instruction) && imply_check(instruction)) return;
    walk(instruction);
    if (instruction.op == GuardOp::same && known_[instruction.first] == nullptr) {
      known_[instruction.first] = instruction.object;
      pin(instruction.first, instruction.object, GuardOp::constant);
    }
    return;
  }
  PyObject* value = registers[instruction.target];
  if (code_.walked[instruction.target] || !imply_load(instruction, value)) {
    walk(instruction);
    return;
  }
  known_[instruction.target] = value;
  types_[instruction.target] = Py_TYPE(value);
  if (!code_.depended[instruction.target]) return;
  pin(instruction.target, value, instruction.op);
}

bool Tier0::imply_load(const GuardInstruction& instruction, PyObject* value) {
  const Blame blame{instruction.target};
  if (instruction.op == GuardOp::constant) return true;
  if (instruction.op == GuardOp::slot) return imply_slot(instruction, value);
  if (instruction.op == GuardOp::scalar) {
    const auto known = [&](uint32_t index) {
      return index == kNoRegister || known_[index] != nullptr;
    };
    if (!known(instruction.first) || !known(instruction.second)) return false;
    hold(value);
    return true;
  }
  PyObject* parent = known_[instruction.first];
  if (parent == nullptr) return false;
  switch (instruction.op) {
    case GuardOp::dict_item: watch(instruction, parent); return true;
    case GuardOp::instance_dict: require(_PyObject_GetDictPtr(parent), value, blame); return true;
    case GuardOp::item: return imply_item(instruction, parent, value);
    case GuardOp::cell:
      require(&reinterpret_cast<PyCellObject*>(parent)->ob_ref, value, blame);
      return true;
    case GuardOp::referent:
      require(&reinterpret_cast<PyWeakReference*>(parent)->wr_object, value, blame);
      return true;
    case GuardOp::defaults: {
      PyObject** at = &reinterpret_cast<PyFunctionObject*>(parent)->func_defaults;
      require(at, *at, blame);
      return true;
    }
    case GuardOp::kwdefaults: {
      PyObject** at = &reinterpret_cast<PyFunctionObject*>(parent)->func_kwdefaults;
      require(at, *at, blame);
      return true;
    }
    case GuardOp::closure:
    case GuardOp::method_function:
    case GuardOp::method_self: return true;
    case GuardOp::type_of: return true;  // pin(parent) has seen to it
    case GuardOp::type_attribute: return imply_type_attribute(parent);
    default: return false;
  }
}

bool Tier0::imply_slot(const GuardInstruction& instruction, PyObject* value) {
  const bool is_cell = value != nullptr && PyCell_Check(value);
  if (is_cell ? !has_in_closure(function_, value) : !can_anchor(value)) return false;
  Object weak = Object::steal(PyWeakref_NewRef(is_cell ? function_ : value, nullptr));
  if (!weak) {
    PyErr_Clear();
    return false;
  }
  anchors_.push_back(
      {static_cast<size_t>(instruction.number), value, std::move(weak), instruction.target});
  return true;
}

bool Tier0::imply_item(const GuardInstruction& instruction, PyObject* sequence, PyObject* value) {
  if (PyTuple_Check(sequence)) return true;
  if (code_.unsteady[instruction.first]) return false;
  watch_list(instruction.first, sequence);
  require(&reinterpret_cast<PyListObject*>(sequence)->ob_item[instruction.number], value,
          {instruction.target});
  return true;
}

bool Tier0::imply_type_attribute(PyObject* object) {
  auto* type = reinterpret_cast<PyTypeObject*>(object);
  const unsigned tag = type->tp_version_tag;
  if (tag == 0) return false;
  const auto known = [&](const Tag& entry) { return entry.type == type; };
  if (std::find_if(tags_.begin(), tags_.end(), known) == tags_.end()) {
    tags_.push_back({type, tag});
    hold(object);
  }
  return true;
}

bool Tier0::knows_all(const GuardInstruction& check) const {
  const auto is_known = [&](uint32_t index) { return known_[index] != nullptr; };
  if (check.op == GuardOp::distinct)
    return std::ranges::all_of(check.distinct->changed, is_known) &&
           std::ranges::all_of(check.distinct->others, is_known);
  return is_known(check.first) && (check.op != GuardOp::alias || is_known(check.second));
}

// True if nothing has to be done each time, with the conditions added.
bool Tier0::imply_check(const GuardInstruction& instruction) {
  PyObject* object = known_[instruction.first];
  switch (instruction.op) {
    case GuardOp::type:
    case GuardOp::same:
    case GuardOp::equal:
    case GuardOp::alias:
    case GuardOp::distinct: return true;
    case GuardOp::tensor: tensors_.push_back({object, instruction.tensor}); return true;
    case GuardOp::absent: watch(instruction, object); return true;
    case GuardOp::keys:
      // The order of an OrderedDict is not in the dict.
      if (PyODict_Check(object) && PyDict_GET_SIZE(object) > 1) return false;
      watch(instruction, object);
      return true;
    case GuardOp::length:
    case GuardOp::truth:
      if (PyDict_Check(object)) {
        watch(instruction, object);
        return true;
      }
      if (PyList_Check(object) && !code_.unsteady[instruction.first]) {
        watch_list(instruction.first, object);
        return true;
      }
      return is_atom(object) || PyTuple_Check(object) || PyFrozenSet_CheckExact(object);
    case GuardOp::function:
      require(&reinterpret_cast<PyFunctionObject*>(object)->func_code, instruction.object,
              {instruction.first});
      return true;
    default: return false;
  }
}

void Tier0::pin(uint32_t index, PyObject* object, GuardOp found_by) {
  const bool is_held = found_by == GuardOp::slot || found_by == GuardOp::constant;
  const bool is_container = PyDict_Check(object) || PyList_Check(object);
  const bool is_instance = is_heap_instance(object) && !PyTuple_Check(object);
  if (!is_held && (PyType_Check(object) || !(is_container || is_instance))) hold(object);
  // renew() looks at the type of what a dict has, and a __dict__ is always a dict.
  const bool has_type_seen = is_held || found_by == GuardOp::dict_item ||
                             found_by == GuardOp::instance_dict || !is_container;
  if (is_heap_instance(object) || PyModule_Check(object) || !has_type_seen) {
    require(&object->ob_type, Py_TYPE(object), {index});
  }
}

void Tier0::require(const void* at, const void* is, Blame blame) {
  require_word(at, reinterpret_cast<uint64_t>(is), {blame});
}

void Tier0::require_word(const void* at, uint64_t is, Origin origin) {
  if (!condition_at_.emplace(at, conditions_.size()).second) return;
  conditions_.push_back({static_cast<const Word*>(at), is});
  origins_.push_back(origin);
}

void Tier0::watch(const GuardInstruction& instruction, PyObject* dict) {
  const uint64_t* version = version_of(dict);
  const auto found = condition_at_.find(version);
  int32_t index = found != condition_at_.end() ? origins_[found->second].dict : -1;
  if (index < 0) {
    index = static_cast<int32_t>(dicts_.size());
    dicts_.emplace_back();
    require_word(version, *version, {{instruction.first}, index});
  }
  dicts_[index].push_back(&instruction);
}

void Tier0::watch_list(uint32_t index, PyObject* list) {
  auto* object = reinterpret_cast<PyListObject*>(list);
  require_word(&object->ob_base.ob_size, static_cast<uint64_t>(Py_SIZE(list)), {{index, true}});
  require(&object->ob_item, object->ob_item, {index, true});
}

uint32_t Tier0::compact(uint32_t index) {
  if (index == kNoRegister) return index;
  return compact_.emplace(index, static_cast<uint32_t>(compact_.size())).first->second;
}

void Tier0::walk(const GuardInstruction& instruction) {
  GuardInstruction copy = instruction;
  copy.target = compact(instruction.target);
  copy.first = compact(instruction.first);
  copy.second = compact(instruction.second);
  if (copy.op == GuardOp::slot) {
    arguments_.push_back({static_cast<size_t>(copy.number), copy.target, nullptr});
    return;
  }
  if (copy.op == GuardOp::distinct) {
    DistinctRegisters& own = distinct_.emplace_back(*instruction.distinct);
    for (uint32_t& index : own.changed) index = compact(index);
    for (uint32_t& index : own.others) index = compact(index);
    copy.distinct = &own;
  }
  if (copy.op == GuardOp::tensor) {
    const auto is_it = [&](const Argument& argument) { return argument.own == copy.first; };
    const auto found = std::find_if(arguments_.begin(), arguments_.end(), is_it);
    if (found != arguments_.end()) {
      found->guard = copy.tensor;
      return;
    }
  }
  walked_.push_back(copy);
}

void Tier0::finish() {
  initial_.assign(compact_.size(), nullptr);
  for (const auto& [index, own] : compact_) initial_[own] = known_[index];
  for (const Argument& argument : arguments_) initial_[argument.own] = nullptr;
  for (const GuardInstruction& instruction : walked_) {
    if (!instruction.makes()) continue;
    made_.push_back(instruction.target);
    initial_[instruction.target] = nullptr;
  }
  part_sizes();
  compact_.clear();
  condition_at_.clear();
}

void Tier0::part_sizes() {
  std::vector<bool> of_sizes(initial_.size()), behind(initial_.size());
  // An object that is the same in each call counts as a size that stays.
  const auto is_of_sizes = [&](uint32_t index) {
    return index == kNoRegister || of_sizes[index] || initial_[index] != nullptr;
  };
  const auto reads = [&](const GuardInstruction& instruction, const std::vector<bool>& some) {
    const auto is_among = [&](uint32_t index) { return index != kNoRegister && some[index]; };
    if (instruction.op == GuardOp::distinct)
      return std::ranges::any_of(instruction.distinct->changed, is_among) ||
             std::ranges::any_of(instruction.distinct->others, is_among);
    return is_among(instruction.first) || is_among(instruction.second);
  };
  std::vector<GuardInstruction> rest;
  for (const GuardInstruction& instruction : walked_) {
    const bool computes = instruction.op == GuardOp::scalar &&
                          instruction.scalar_op != ScalarOp::call &&
                          is_of_sizes(instruction.first) && is_of_sizes(instruction.second);
    const bool asks = (instruction.op == GuardOp::type || instruction.op == GuardOp::same ||
                       instruction.op == GuardOp::equal || instruction.op == GuardOp::truth) &&
                      of_sizes[instruction.first];
    if ((instruction.op == GuardOp::size && !reads(instruction, behind)) || computes || asks) {
      if (instruction.is_load()) of_sizes[instruction.target] = true;
      of_sizes_.push_back(instruction);
    } else if (reads(instruction, of_sizes) || reads(instruction, behind)) {
      if (instruction.is_load()) behind[instruction.target] = true;
      behind_.push_back(instruction);
    } else {
      rest.push_back(instruction);
    }
  }
  walked_ = std::move(rest);
}

bool Tier0::is_for(std::span<PyObject* const> slots) const {
  for (const Anchor& anchor : anchors_) {
    if (anchor.slot >= slots.size() || slots[anchor.slot] != anchor.get()) return false;
  }
  return true;
}

bool Tier0::check(std::span<PyObject* const> slots, PyObject** registers, Blame* blame) {
  for (const Tag& entry : tags_) {
    if (entry.type->tp_version_tag != entry.tag) return false;
  }
  if (!conditions_hold(blame)) return false;
  for (const PinnedTensor& entry : tensors_) {
    if (!entry.guard->holds(entry.tensor)) return false;
  }
  for (const Argument& argument : arguments_) {
    PyObject* object = argument.slot < slots.size() ? slots[argument.slot] : nullptr;
    if (object == nullptr || (argument.guard != nullptr && !argument.guard->holds(object))) {
      return false;
    }
  }
  if (!walked_.empty() || !of_sizes_.empty()) return walk_all(slots, registers);
  const size_t wanted = code_.wanted.size();
  for (size_t i = 0; i < wanted; ++i) registers[i] = Py_XNewRef(initial_[i]);
  for (const Argument& argument : arguments_) {
    if (argument.own < wanted) registers[argument.own] = Py_NewRef(slots[argument.slot]);
  }
  return true;
}

bool Tier0::conditions_hold(Blame* blame) {
  const Condition* const begin = conditions_.data();
  const Condition* const end = begin + conditions_.size();
  for (const Condition* condition = begin; condition != end; ++condition) {
    if (*condition->at != condition->is && !renew(condition - begin, blame)) return false;
  }
  return true;
}

bool Tier0::renew(size_t condition, Blame* blame) {
  const Origin& origin = origins_[condition];
  *blame = origin.blame;
  if (origin.dict < 0) return false;
  for (const GuardInstruction* instruction : dicts_[origin.dict]) {
    if (instruction->op == GuardOp::dict_item) {
      PyObject* dict = known_[instruction->first];
      PyObject* found = find_item(dict, instruction->object, instruction->number);
      if (found != known_[instruction->target] || Py_TYPE(found) != types_[instruction->target]) {
        *blame = {instruction->target};
        return false;
      }
    } else if (!execute(*instruction, {}, known_.data())) {
      return false;
    }
  }
  conditions_[condition].is = *conditions_[condition].at;
  return true;
}

bool Tier0::walk_sizes(std::span<PyObject* const> slots, PyObject** own) const {
  bool is_as_last = !last_.sizes.empty();
  size_t next = 0;
  for (const GuardInstruction& instruction : of_sizes_) {
    if (instruction.op != GuardOp::size) continue;
    PyObject* tensor = own[instruction.first];
    const auto dim = static_cast<int>(instruction.number);
    if (!tensors().is_tensor(tensor) || dim >= tensors().rank_of(tensor)) {
      last_ = {};
      return false;
    }
    const int64_t size = tensors().size_of(tensor, dim);
    if (!is_as_last || last_.sizes[next] != size) {
      is_as_last = false;
      last_.sizes.resize(std::max(last_.sizes.size(), next + 1));
      last_.sizes[next] = size;
    }
    ++next;
  }
  if (is_as_last) {
    size_t made = 0;
    for (const GuardInstruction& instruction : of_sizes_)
      if (instruction.is_load()) own[instruction.target] = Py_NewRef(last_.made[made++].get());
    return true;
  }
  for (const GuardInstruction& instruction : of_sizes_)
    if (!execute(instruction, slots, own)) {
      last_ = {};
      return false;
    }
  last_.made.clear();
  for (const GuardInstruction& instruction : of_sizes_)
    if (instruction.is_load()) last_.made.push_back(Object::share(own[instruction.target]));
  return true;
}

bool Tier0::walk_all(std::span<PyObject* const> slots, PyObject** registers) const {
  std::optional<NoCollection> no_collection;
  if (!made_.empty()) no_collection.emplace();
  Scratch<64> own(initial_.size());
  std::copy(initial_.begin(), initial_.end(), own.data());
  for (const Argument& argument : arguments_) own[argument.own] = slots[argument.slot];
  const auto all_hold = [&](const std::vector<GuardInstruction>& instructions) {
    return std::ranges::all_of(instructions, [&](const GuardInstruction& instruction) {
      return execute(instruction, slots, own.data());
    });
  };
  const bool holds = all_hold(walked_) && (of_sizes_.empty() || walk_sizes(slots, own.data())) &&
                     all_hold(behind_);
  if (holds) {
    for (size_t i = 0; i < code_.wanted.size(); ++i) registers[i] = Py_NewRef(own[i]);
  }
  for (const uint32_t index : made_) Py_XDECREF(own[index]);
  return holds;
}

int Tier0::traverse(visitproc visit, void* arg) const {
  for (const Anchor& anchor : anchors_) Py_VISIT(anchor.weak.get());
  for (const Object& object : held_) Py_VISIT(object.get());
  return 0;
}

}  // namespace smelt::bytecode
