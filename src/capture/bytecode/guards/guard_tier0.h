// Tier 0 of a guard program: a few comparisons of words in memory that imply what the program found
// when it last ran in full.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "capture/bytecode/guards/guard_instructions.h"

namespace smelt::bytecode {

class Tier0 {
 public:
  // `registers`: what `code` loaded when it just held for these objects, in a frame of this
  // function (or nullptr). `code` must live longer.
  Tier0(const GuardCode& code, PyObject* const* registers, PyObject* function);

  // Whether CPython has what tier 0 compares: dicts have a version that each change renews.
  static constexpr bool kPossible = PY_VERSION_HEX < 0x030D0000;

  // The slots hold the objects that it was made for.
  bool is_for(std::span<PyObject* const> slots) const;

  // What stood in the way: an object that is not the one it was, or a list whose items moved.
  struct Blame {
    uint32_t index = kNoRegister;
    bool items = false;
  };
  // True if everything still holds; then there are new references in registers[0..wanted). is_for()
  // was true. A dict that was changed is looked at again, and if nothing of what was read from it
  // changed, it is known by its new version.
  bool check(std::span<PyObject* const> slots, PyObject** registers, Blame* blame);

  // An object in a slot that everything else hangs on. It is not kept alive.
  struct Anchor {
    size_t slot;
    PyObject* object;  // borrowed
    Object weak;       // to it, or to what keeps it alive
    uint32_t index;    // register

    // nullptr if it is gone
    PyObject* get() const { return PyWeakref_GET_OBJECT(weak.get()) == Py_None ? nullptr : object; }
  };
  const std::vector<Anchor>& anchors() const { return anchors_; }

  uint64_t hits = 0;

  int traverse(visitproc visit, void* arg) const;

 private:
  using Word __attribute__((may_alias)) = uint64_t;
  struct Condition {
    const Word* at;
    uint64_t is;
  };
  struct Origin {  // of a condition
    Blame blame;
    int32_t dict = -1;  // in dicts_, if it is the dict's version
  };
  struct Tag {
    PyTypeObject* type;  // held
    unsigned tag;
  };
  struct PinnedTensor {
    PyObject* tensor;
    const TensorGuard* guard;
  };

  // An object in a slot that may be another one in each call.
  struct Argument {
    size_t slot;
    uint32_t own;              // register
    const TensorGuard* guard;  // nullptr: none
  };

  void add(const GuardInstruction& instruction, PyObject* const* registers);
  bool imply_load(const GuardInstruction& instruction, PyObject* value);
  bool imply_slot(const GuardInstruction& instruction, PyObject* value);
  bool imply_item(const GuardInstruction& instruction, PyObject* sequence, PyObject* value);
  bool imply_check(const GuardInstruction& instruction);
  bool knows_all(const GuardInstruction& check) const;
  bool imply_type_attribute(PyObject* type);
  void pin(uint32_t index, PyObject* object, GuardOp found_by);
  void hold(PyObject* object) { held_.push_back(Object::share(object)); }
  void require(const void* at, const void* is, Blame blame);
  void require_word(const void* at, uint64_t is, Origin origin);
  void watch(const GuardInstruction& instruction, PyObject* dict);
  void watch_list(uint32_t index, PyObject* list);
  void walk(const GuardInstruction& instruction);
  uint32_t compact(uint32_t index);
  void finish();

  bool conditions_hold(Blame* blame);
  bool renew(size_t condition, Blame* blame);
  void part_sizes();
  bool walk_sizes(std::span<PyObject* const> slots, PyObject** own) const;
  bool walk_all(std::span<PyObject* const> slots, PyObject** registers) const;

  const GuardCode& code_;
  PyObject* const function_;  // while it is made
  std::vector<Anchor> anchors_;
  std::vector<Tag> tags_;
  // Parents before children: what a condition reads is alive if those before it hold.
  std::vector<Condition> conditions_;
  std::vector<Origin> origins_;
  std::vector<std::vector<const GuardInstruction*>> dicts_;  // what depends on each
  std::vector<PinnedTensor> tensors_;
  std::vector<PyObject*> known_;      // by register; nullptr: to be loaded. Borrowed
  std::vector<PyTypeObject*> types_;  // theirs, to be compared only
  // What is loaded and checked each time, over registers of its own, the wanted ones first:
  // arguments, then everything else.
  std::vector<Argument> arguments_;
  std::vector<GuardInstruction> walked_;
  // Of what is walked, behind it: sizes of tensors, and what is computed of them and of nothing
  // else. Where the sizes are those of the last call, so is all of that. `behind_`: what reads some
  // of it beside other things.
  std::vector<GuardInstruction> of_sizes_, behind_;
  struct LastSizes {
    std::vector<int64_t> sizes;  // by GuardOp::size in of_sizes_; empty: there was no call
    std::vector<Object> made;    // by load in of_sizes_
  };
  mutable LastSizes last_;
  std::deque<DistinctRegisters> distinct_;  // of these
  std::vector<PyObject*> initial_;
  std::vector<uint32_t> made_;
  std::vector<Object> held_;

  // While it is made
  std::unordered_map<uint32_t, uint32_t> compact_;
  std::unordered_map<const void*, size_t> condition_at_;
};

}  // namespace smelt::bytecode
