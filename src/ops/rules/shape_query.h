// What a shape rule is asked: the op's arguments and their types, with symbolic sizes kept exactly.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/arg.h"
#include "base/error.h"
#include "base/symbols.h"
#include "base/type.h"

namespace smelt {

// One question to a shape rule: the op's arguments (positional, defaults included) and their types.
class ShapeQuery {
 public:
  // types[i] is the type of the tensor Ref{i}; a number in a tensor's place is a wrapped number.
  // `default_float` is the default dtype under which the op is called (Graph::default_float).
  ShapeQuery(std::span<const Arg> args, std::span<const TensorType> types, SymbolTable& symbols,
             DType default_float)
      : args_(args), types_(types), symbols_(symbols), default_float_(default_float) {}

  size_t size() const { return args_.size(); }
  const Arg& arg(size_t i) const { return args_[i]; }
  bool is_none(size_t i) const { return i >= args_.size() || args_[i].is_none(); }
  bool is_tensor(size_t i) const { return i < args_.size() && args_[i].is<Ref>(); }
  // The type of a tensor argument; of a number in its place, the 0-dim wrapped-number type torch
  // gives it.
  TensorType tensor(size_t i) const;
  const TensorType& type(Ref ref) const { return types_[ref.id]; }
  std::vector<TensorType> tensors(size_t i) const;  // of a tensor list
  int64_t integer(size_t i) const;  // a known integer; a symbolic one is specialised
  Size size_at(size_t i) const;     // an integer, possibly symbolic
  Sizes sizes(size_t i) const;      // of an int list; an int stands for a list of one
  std::vector<int64_t> integers(size_t i) const;
  bool boolean(size_t i) const;
  double number(size_t i) const;
  std::optional<DType> dtype(size_t i) const;
  std::optional<Device> device(size_t i) const;
  std::optional<MemoryFormat> format(size_t i) const;
  std::string_view text(size_t i) const;  // of a string, empty for none
  SymbolTable& symbols() const { return symbols_; }
  DType default_float() const { return default_float_; }

  // The answer: one type per result, nothing for an undefined one. A list result is flattened.
  std::vector<std::optional<TensorType>> results;
  void push(TensorType type) { results.emplace_back(std::move(type)); }

 private:
  std::span<const Arg> args_;
  std::span<const TensorType> types_;
  SymbolTable& symbols_;
  DType default_float_;
};

// Fills q.results, or says why this rule can't: wrong arguments as well, since PyTorch words those
// errors itself in the next tier. A rule never throws on user input.
using ShapeRule = Decision (*)(ShapeQuery& q);

}  // namespace smelt
