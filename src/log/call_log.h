// What ops a piece of code called on tensors, in order, as plain data: the language between the
// code that is followed and the graphs that are made of it. Unlike a graph it is not functional:
// calls change their arguments, values share memory, gradients are set. What is alive (tensors,
// generators, Python's objects) stays with whoever wrote the log, under the same numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/arg.h"
#include "base/log_ids.h"
#include "base/type.h"
#include "graph/op_name.h"

namespace smelt {

struct LoggedValue {
  enum class Kind : uint8_t { input, constant, result };
  Kind kind = Kind::result;
  int32_t memory = 0;              // equal for values that share storage; 0: not known
  int32_t call = -1;               // of a result: the call that made it
  std::optional<TensorType> type;  // nothing: no graph has such (sparse, quantized)
  bool requires_grad = false;
  bool dynamic = false;  // its shape depends on contents: it may be handed on, but not looked at
  // Known to nobody behind the call that made it: it was made in a hook, in the forward of a custom
  // function, whose backward alone knows it, or by a call that was taken back.
  bool inner = false;
  bool dual = false;  // it has a tangent of forward-mode autograd
  bool retains_grad = false;
  bool apart = false;  // changes of it do not count as changes of others on its memory: `.data`

  friend bool operator==(const LoggedValue&, const LoggedValue&) = default;
};

// How far a call has raised the version of a value.
struct VersionRise {
  LogValue value = -1;
  uint32_t by = 0;

  friend bool operator==(const VersionRise&, const VersionRise&) = default;
};

struct LoggedCall {
  OpName op;
  std::vector<Arg> args;           // positional; a tensor is a Ref to its value
  std::vector<TakenNumber> takes;  // in their places the args have what they were
  std::vector<LogValue> results;   // one per tensor returned; -1: undefined
  std::vector<LogValue> written;   // whose memory or metadata it changes
  std::vector<VersionRise> rises;
  int32_t ambient = 0;
  int32_t number = -1;       // of an op that gives a number: its place among those
  Arg given;                 // and what it gave
  int32_t recomputed = 0;    // > 0: part of a piece that its backward computes again
  bool effect = false;       // it returns nothing: it is called for what it does
  bool random = false;       // it draws
  bool sized = false;        // contents decide about the sizes of its results: a run expects these
  bool expected = false;     // a run expects the number that it gave
  bool has_effects = false;  // nothing says that it only computes
  bool calls_back = false;   // it calls a custom autograd function
  bool registers_hook = false;  // on a result of the log; the passes that call it have it
  // Contents decide about sizes, and each run has its own: it is called between graphs. Of an op
  // that selects elements, and of one that reads a number that is a size.
  bool counts = false;

  friend bool operator==(const LoggedCall&, const LoggedCall&) = default;
};

// PyTorch's switches around a call, as far as they are asked for here.
struct LogAmbient {
  bool grad = true;
  bool inference = false;

  friend bool operator==(const LogAmbient&, const LogAmbient&) = default;
};

class CallLog {
 public:
  std::vector<LogAmbient> ambients;  // what calls refer to
  std::vector<LoggedValue> values;
  std::vector<LoggedCall> calls;
  std::vector<LogValue> outputs;  // what is wanted of it; -1: no tensor

  const LoggedValue& value(LogValue id) const { return values[static_cast<size_t>(id)]; }
  // Takes part in autograd, and was made here.
  bool is_tracked(LogValue id) const {
    return id >= 0 && value(id).kind == LoggedValue::Kind::result && value(id).requires_grad;
  }
  bool takes_dynamic(const LoggedCall& call) const;
  bool gives_dynamic(const LoggedCall& call) const;

  // The text form, as print.cpp shows it; parse(str()) is equal.
  std::string str() const;
  static CallLog parse(std::string_view text);  // Error with line and column on bad text
  // Ids in range, values made once and before they are used; an InternalError says what is not.
  void verify() const;
  // Stable over processes: of the text.
  uint64_t hash() const;

  friend bool operator==(const CallLog&, const CallLog&) = default;
};

// The tensors of an argument, and those that a call takes, in order.
template <class Visit>
void each_tensor_of(const Arg& arg, const Visit& visit) {
  if (const Ref* ref = std::get_if<Ref>(&arg)) {
    if (ref->id >= 0) visit(ref->id);
  } else if (const ArgList* list = std::get_if<ArgList>(&arg)) {
    for (const Arg& element : *list) each_tensor_of(element, visit);
  }
}
template <class Visit>
void each_argument(const LoggedCall& call, const Visit& visit) {
  for (const Arg& arg : call.args) each_tensor_of(arg, visit);
}
bool is_argument(const LoggedCall& call, LogValue value);
// The first of these; -1: it takes none.
LogValue first_argument(const LoggedCall& call);

// Elements of a tensor; nothing: not known.
std::optional<int64_t> elements_of(const LoggedValue& value);

// Which memory is that of an input.
class InputMemory {
 public:
  explicit InputMemory(const CallLog& log);
  bool contains(int32_t memory) const {
    return static_cast<size_t>(memory) < is_input_.size() && is_input_[memory];
  }

 private:
  std::vector<bool> is_input_;
};

}  // namespace smelt
