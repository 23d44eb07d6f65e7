// What a trace keeps about the objects it knows, and of its own state: plain data.
#pragma once

#include <optional>
#include <vector>

#include "base/settings.h"
#include "capture/bytecode/account/overlay.h"
#include "capture/bytecode/nodes/lazy_elements.h"
#include "capture/bytecode/nodes/node.h"

namespace smelt::bytecode {

// len() of a list, tuple, dict or set; -1: it is none.
int64_t length_of(PyObject* object);
// A tuple of the keys, in order.
Object keys_of(PyObject* dict);
// A tuple of the elements, whatever __len__ and __iter__ a subclass has.
Object elements_of(PyObject* set);

// A __del__ of the user's, which runs at a time of its own.
bool has_finaliser(PyObject* object);

// What a trace keeps about one object.
struct Tracked {
  Object object;
  int32_t holds = 1;  // references that the trace has to it: this one, and those of its nodes
  Ref ref = 0;
  bool born = false;
  bool known = false;         // own(): contents are guarded or our own
  int64_t length = -1;        // of an outside container when first seen
  Overlay overlay;            // what was written: items of a dict or list, fields of other objects
  Object keys_before;         // dict: tuple of the keys before the first change
  bool cell_written = false;  // cell: its contents have `cell_ref`
  Ref cell_ref = 0;
  bool transient = false;             // can't be made again
  std::optional<LogTrouble> refusal;  // a tensor that the log can't follow
  Value iterated;                     // iterator: over this
  Object keeps;                       // iterator: the same, for it lets go of it at the end
  bool shrunk = false;                // dict: something was deleted from it
  LazyElements lazy;
};

// What a trace is to be made into.
struct SegmentRequest {
  Settings settings;
  PyObject* backend_callable = nullptr;
};

// How far the steps and the nodes are.
struct TraceMark {
  size_t steps = 0;
  Ref nodes = 0;
};

// How far each part of the account is.
struct Position {
  size_t steps = 0, log = 0, guards = 0, absent = 0, lookups = 0, aliases = 0, readings = 0,
         remembered = 0;
};

// How an iterator is made again that is alive where the trace ends: over a container, which has
// given out so many elements; or by calling its type. Without a type it is a value among the
// arguments of such a call.
struct Remade {
  Object type;
  Value over;
  int position = 0;
  std::vector<Remade> arguments;
};

// A place in front of which the trace can end.
struct Checkpoint {
  int offset = -1;
  int depth = 0;
  Position position;
  std::vector<Operand> slots;
  std::vector<Remade> remade;  // per slot; without a type: it is no iterator
  std::vector<Object> held;    // what these go over
};

// By which a path is found again.
struct PathKey {
  NodeKind kind;
  Ref parent;
  PyObject* key;
  int index;
  bool operator==(const PathKey&) const = default;
};

struct PathHash {
  size_t operator()(const PathKey& key) const;
};

}  // namespace smelt::bytecode
