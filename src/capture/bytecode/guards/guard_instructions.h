// What a guard program is made of: loads, which find an object and put it into a register, and
// checks of what is in a register. Shared by the two tiers of guard_program.h.
#pragma once

#include <Python.h>

#include <cstdint>
#include <span>
#include <vector>

#include "capture/bytecode/nodes/node.h"

namespace smelt::bytecode {

enum class GuardOp : uint8_t {
  // Loads, in the order of NodeKind.
  constant,
  slot,
  dict_item,
  instance_dict,
  item,
  cell,
  closure,
  defaults,
  kwdefaults,
  method_function,
  method_self,
  type_of,
  type_attribute,
  attribute,
  iterated,
  referent,
  size,
  scalar,
  // Checks
  type,
  same,
  equal,
  length,
  tensor,
  keys,
  truth,
  function,
  set,
  absent,
  alias,
  position,
  distinct,
};

inline constexpr uint32_t kNoRegister = UINT32_MAX;

// A DistinctGuard, by registers.
struct DistinctRegisters {
  std::vector<uint32_t> changed, others;

  bool hold(PyObject* const* registers) const;
};

struct GuardInstruction {
  GuardOp op = GuardOp::constant;
  ScalarOp scalar_op = ScalarOp::binary;
  bool expected = false;          // truth; alias: same
  Ref ref = 0;                    // the node, for messages
  uint32_t target = kNoRegister;  // of a load
  uint32_t first = kNoRegister;   // parent, operand, or what is checked
  uint32_t second = kNoRegister;
  int64_t number = 0;            // slot, index, length, operation; hash of a key
  PyObject* object = nullptr;    // key or what is expected; all of these are held by the program
  PyObject* other = nullptr;     // function: its globals; attribute: the descriptor
  PyTypeObject* type = nullptr;  // attribute: of the parent
  const TensorGuard* tensor = nullptr;
  const DistinctRegisters* distinct = nullptr;

  bool is_load() const { return op <= GuardOp::scalar; }
  // Its register gets a new reference; other loads borrow.
  bool makes() const {
    return op == GuardOp::attribute || op == GuardOp::size || op == GuardOp::scalar;
  }
};

// The program, without what it is made from.
struct GuardCode {
  // Parents before children, a node's checks behind its load.
  std::vector<GuardInstruction> instructions;
  uint32_t registers = 0;
  std::vector<uint32_t> wanted;  // registers
  std::vector<uint32_t> made;    // registers with new references
  // By register, for tier 0. `depended`: there is a check on it or a path through it. `walked`: it
  // changes so often that it is loaded by each call. `unsteady`: a list for which that is true of
  // its items.
  std::vector<bool> depended, walked, unsteady;
};

// Does the load, or checks. False if that is not possible or does not hold; no error is left set.
// With an instruction that makes an object, the collector must be off (see NoCollection).
bool execute(const GuardInstruction& instruction, std::span<PyObject* const> slots,
             PyObject** registers);

// No garbage collection, and so no finaliser of the user's, while borrowed references are about.
// (Before 3.12 any allocation may collect.)
class NoCollection {
 public:
  NoCollection() : was_on_(PyGC_Disable()) {}
  ~NoCollection() {
    if (was_on_) PyGC_Enable();
  }
  NoCollection(const NoCollection&) = delete;
  NoCollection& operator=(const NoCollection&) = delete;

 private:
  bool was_on_;
};

// An array on the C stack, on the heap if it is a big one. Not initialised.
template <size_t kSmall>
class Scratch {
 public:
  explicit Scratch(size_t size) {
    if (size > kSmall) big_.resize(size);
    data_ = size > kSmall ? big_.data() : small_;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  PyObject** data() { return data_; }
  PyObject*& operator[](size_t i) { return data_[i]; }

 private:
  PyObject* small_[kSmall];
  PyObject** data_;
  std::vector<PyObject*> big_;
};

}  // namespace smelt::bytecode
