// The sizes of a log's tensors as expressions of those sizes of its inputs that vary. Beside the
// tensors that the ops of a trace really compute there is one without contents for each, with such
// sizes, on which the ops are recorded as they come. What PyTorch decides about sizes on the way
// (broadcasting, the number of chunks) holds for some sizes only: these decisions are guards.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/error.h"
#include "base/varying_sizes.h"
#include "capture/dispatch/recorder.h"
#include "capture/log/op_log.h"

namespace smelt {

class OpAmbientScope;

class SizeShadow {
 public:
  SizeShadow();
  ~SizeShadow();
  SizeShadow(const SizeShadow&) = delete;
  SizeShadow& operator=(const SizeShadow&) = delete;

  // Whom to ask for the line of the program, for guards.
  void set_locator(std::function<std::string()> where) { where_ = std::move(where); }
  Size add_symbol(int64_t hint) { return recorder_->add_symbol(hint); }
  void vary(LogValue input, SymbolicDims dims) { inputs_.emplace(input, std::move(dims)); }

  // The expression of a run-time scalar; nothing if it is no size.
  using SizeOf = std::function<std::optional<Size>(ScalarId)>;
  // Follows the ops that came since the last time. From a refusal on nothing is known any more.
  Decision follow(const OpLog& log, const SizeOf& size_of);
  // Nothing where it is not known.
  std::optional<Sizes> sizes_of(const OpLog& log, LogValue value) const;
  // The same with dtype, strides and the place in memory.
  std::optional<TensorType> type_of(const OpLog& log, LogValue value) const;
  const SymbolTable& symbols() const { return recorder_->symbols(); }
  // Symbols for what contents decide, in order: numbers that ops gave (LoggedCall::number).
  struct LateSize {
    Size size;
    int32_t number;
  };
  const std::vector<LateSize>& late() const { return late_; }

 private:
  // One of the log, or of a function that the log calls.
  struct Followed {
    const LoggedCall& call;
    const RealCall& real;
    const LoggedCall* next;  // behind it
  };
  // By which a call is known again.
  struct Mark {
    const OpInfo* op;
    LogValue result;
    bool operator==(const Mark&) const = default;
  };
  static Mark mark_of(const OpLog& log, size_t call);

  at::Tensor tensor(const OpLog& log, LogValue value);
  std::string asking() const;
  void enter(const OpLog& log, const Followed& one, const SizeOf& size_of);
  void follow(const OpLog& log, const Followed& one, const SizeOf& size_of);
  void follow_function(const OpLog& log, const Followed& one, const SizeOf& size_of);
  void call(const OpLog& log, const Followed& one, const SizeOf& size_of);
  void compute(const OpLog& log, const Followed& one, std::vector<c10::IValue>& stack);
  void take_known(const OpLog& log, const LoggedCall& call);
  void take_fixed(const OpLog& log, const LoggedCall& call);
  void take_gradients(const OpLog& log, const LoggedCall& call);

  std::function<std::string()> where_;
  const OpInfo* followed_op_ = nullptr;
  OpAmbientScope* ambient_ = nullptr;  // while calls are followed
  std::vector<LateSize> late_;
  const std::shared_ptr<Recorder> recorder_;
  std::unordered_map<LogValue, SymbolicDims> inputs_;
  std::unordered_map<LogValue, at::Tensor> tensors_;
  std::vector<Mark> followed_;  // calls of the log
  Decision possible_ = Decision::allow();
};

}  // namespace smelt
