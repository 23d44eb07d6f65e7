// The name of an op, "aten::add.Tensor", interned: comparing two is comparing pointers.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace smelt {

class OpName {
 public:
  OpName() = default;
  explicit OpName(std::string_view name);  // thread-safe

  const std::string& str() const { return *name_; }
  friend bool operator==(OpName a, OpName b) { return a.name_ == b.name_; }

 private:
  friend struct std::hash<OpName>;
  const std::string* name_ = nullptr;
};

}  // namespace smelt

template <>
struct std::hash<smelt::OpName> {
  size_t operator()(smelt::OpName name) const { return std::hash<const void*>()(name.name_); }
};
