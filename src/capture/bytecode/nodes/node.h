// Where the objects of a trace come from, what was found out about them, and what is to be done
// with them again: the data a trace leaves behind. Plain data; trace.h makes it, guard_program.h
// and replay.h use it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "capture/bytecode/cpython/object.h"
#include "capture/bytecode/cpython/type_state.h"
#include "capture/bytecode/nodes/tensors.h"

namespace smelt::bytecode {

// A node of the trace; 0 means that the object is a constant, the very object itself.
using Ref = uint32_t;

struct Value {
  PyObject* object = nullptr;  // borrowed
  Ref ref = 0;
};

enum class NodeKind : uint8_t {
  constant,  // `object`
  // Paths: how an object that existed before is found again.
  slot,             // slot `index` of the root's frame: locals, cells, then stack
  dict_item,        // parent[key], parent being a dict
  instance_dict,    // parent.__dict__
  item,             // parent[index], parent being a list or tuple (or subclass with their storage)
  cell,             // what is in the cell
  closure,          // parent.__closure__[index], a cell
  defaults,         // parent.__defaults__
  kwdefaults,       // parent.__kwdefaults__
  method_function,  // parent.__func__ of a bound method
  method_self,      // parent.__self__ of a bound method or builtin
  type,             // type(parent)
  type_attribute,   // what the type `parent` or a base of it has for `key`
  attribute,        // getattr(parent, key), a getter in C that only reads (Tensor.grad, __slots__,
                    // partial.func)
  iterated,         // what the iterator `parent` goes over: a list, tuple or dict
  referent,         // what the weak reference `parent` leads to, None if that is gone
  size,             // the size of the tensor `parent` at dimension `index`
  // Computed
  scalar,  // `op` on operands, all of them int, float, bool or str: evaluated with the guards
  tensor,  // value `index` of the tensor log
  result,  // of step `index`
  number,  // number `index` that the tensor program reads from a tensor
};

enum class ScalarOp : uint8_t {
  binary,
  unary_negative,
  unary_positive,
  unary_invert,
  unary_not,
  compare,
  is_true,
  call  // `key` is a function in C of numbers alone
};

// Guards on one node; bits.
enum GuardBits : uint16_t {
  kGuardType = 1,         // exact type
  kGuardSame = 2,         // the same object
  kGuardEqual = 4,        // same type and ==
  kGuardLength = 8,       // len() of a list, tuple, dict, set (dict: of its keys)
  kGuardTensor = 16,      // TensorGuard
  kGuardKeys = 32,        // the keys of a dict, in order
  kGuardTruth = 64,       // bool(): int, float, str, bool, and lengths of containers
  kGuardFunction = 128,   // a function with the same code and globals
  kGuardSet = 256,        // a set with the same elements, in the same order
  kGuardPresent = 512,    // it is there, whatever it is
  kGuardPosition = 1024,  // an iterator that has given out `length` elements
};

struct Node {
  NodeKind kind = NodeKind::constant;
  Ref parent = 0;
  int32_t index = 0;    // slot, item, closure, log value, step; BinaryOp or compare op of a scalar
  uint16_t guards = 0;  // GuardBits
  uint16_t asked = 0;   // those that the trace has written down
  ScalarOp op = ScalarOp::binary;
  Ref second = 0;      // second operand of a scalar, 0: `key` is the constant
  Object key;          // dict key, attribute name; function of a scalar
  Object object;       // what was there when traced
  bool gone = false;   // the program has dropped that since: `object` is its type
  int64_t length = 0;  // kGuardLength, kGuardPosition, as it was at the start
  bool truth = false;  // kGuardTruth
  bool late = false;   // a number, or computed from one: known when the tensor program has run
  Object keys;         // kGuardKeys, kGuardSet: a tuple; kGuardPosition: what is left of a range
  Object where;        // of a condition on sizes: the line that asks, and the op
  std::shared_ptr<const TensorGuard> tensor;
  Object seen;  // its class, of a function its code, where another one can be set: when traced

  PyTypeObject* type() const {
    if (seen && PyType_Check(seen.get())) return reinterpret_cast<PyTypeObject*>(seen.get());
    return gone ? reinterpret_cast<PyTypeObject*>(object.get()) : Py_TYPE(object.get());
  }
};

// The dict `dict` has no `key`.
struct AbsentKey {
  Ref dict;
  Object key;
};

// Looking `name` up in the type (its bases included) gives `found`, or nothing. Equality of
// tp_version_tag implies it.
struct TypeLookup {
  Object type;
  Object name;
  Object found;
};

// Two paths lead to the same object (or, not `same`, to two).
struct AliasGuard {
  Ref a, b;
  bool same = true;
};

// No object among `changed` is another one of them, or one of `others`.
struct DistinctGuard {
  std::vector<Ref> changed, others;
};

// function(*arguments), C code that only looks at some state, gave a value: a constant.
struct Reading {
  Object function;
  Object arguments;  // a tuple
  Object value;
};

// What a function behind functools.lru_cache gave for these arguments. A cached call asks it again
// once the guards hold, and puts what it gives now into `holder`, a list of one, where paths begin.
struct Remembered {
  Object function;
  Object arguments;  // a tuple
  Object keywords;   // a dict, or nothing
  Object holder;
};

// An input of a step: a node, or a constant.
struct Operand {
  Ref ref = 0;
  Object constant;  // with ref 0; both empty: no object (an unset local, NULL on the stack)
};

enum class StepKind : uint8_t {
  build_tuple,
  build_list,
  build_set,
  build_map,  // key, value, key, value...
  build_slice,
  build_size,  // torch.Size
  call,        // inputs[0](*inputs[1:]), `names`: keyword names of the last ones
  set_attr,    // inputs[0].<inputs[1]> = inputs[2], by type(inputs[0])'s own setter
  del_attr,
  set_item,  // inputs[0][inputs[1]] = inputs[2]
  del_item,
  list_append,    // inputs[0].append(inputs[1])
  new_cell,       // of inputs[0], which may be no object
  set_cell,       // inputs[0] is the cell; inputs[1] may be no object
  make_function,  // code, globals, then as MAKE_FUNCTION's flags `arg` tell: defaults, kwdefaults,
                  // annotations, closure; qualname last
  bound_method,   // function, self
  instance_dict,  // inputs[0].__dict__, of an object that the trace made
  iterator,       // over inputs[0], which has given out `arg` elements; `names`: its type
  advance,        // next(inputs[0])
  copy,           // of a constant: Size, frozenset, slice, range
};

// Something done to Python objects, done again in this order by each cached call.
struct Step {
  StepKind kind;
  int32_t arg = 0;
  Object names;
  std::vector<Operand> inputs;
  Ref result = 0;  // 0: none
  bool effect =
      false;  // changes inputs[0] (or the world), so it matters even if no one uses the result
  size_t position = 0;    // of the log, when it was done
  bool switches = false;  // one of PyTorch's switches
};

// How a segment ends: with a value, or in front of an instruction.
struct Exit {
  bool returns = false;
  Operand value;               // returns
  int32_t offset = 0;          // else: the unit of the instruction that comes next
  int32_t depth = 0;           // values on the stack
  std::vector<Operand> slots;  // locals, cells, stack
};

// What a trace found out, complete.
struct TraceResult {
  Object code;                     // of the root's frame: what its slots are called
  std::vector<Node> nodes;         // nodes[0] is unused
  std::vector<uint8_t> slots_set;  // which slots had an object at the start
  std::vector<AbsentKey> absent;
  std::vector<TypeLookup> lookups;
  std::vector<TypeState> types;  // of guarded objects and of lookups, when the trace ended
  std::vector<AliasGuard> aliases;
  std::vector<DistinctGuard> distinct;
  std::vector<Reading> readings;  // at the start
  std::vector<Remembered> remembered;
  std::vector<Step> steps;  // those that matter
  Exit exit;
  Ambient ambient;                         // at the start
  std::unique_ptr<TensorProgram> program;  // nullptr: no tensor op
  std::vector<Ref> program_inputs;         // path nodes
  std::vector<Ref> program_scalars;        // path nodes and scalars: ints and floats
  std::vector<Ref> program_outputs;        // nodes of kind tensor, then late numbers
  bool handles = false;                    // a handler (try, with) would see the error of some op
  bool catches = false;                    // and it is one that may end the error: except
};

}  // namespace smelt::bytecode
