#include "aten/size_node.h"

#include <c10/core/SymNodeImpl.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace smelt {
namespace {

using c10::SymNode;

// A condition under construction: a comparison of sizes, or one already decided. Decided late, when
// torch asks for the bool, so that only what is asked becomes a guard.
struct Condition {
  Size left = 1, right = 1;
  Relation relation = Relation::eq;
};

class SizeNode final : public c10::SymNodeImpl {
 public:
  enum class Kind : uint8_t { integer, boolean, floating };

  SizeNode(Size size, SymbolsPtr symbols) : size_(std::move(size)), symbols_(std::move(symbols)) {}
  SizeNode(Condition condition, SymbolsPtr symbols)
      : kind_(Kind::boolean), condition_(std::move(condition)), symbols_(std::move(symbols)) {}
  SizeNode(double number, SymbolsPtr symbols)
      : kind_(Kind::floating), number_(number), symbols_(std::move(symbols)) {}

  const Size& size() const { return size_; }

  bool is_int() override { return kind_ == Kind::integer; }
  bool is_bool() override { return kind_ == Kind::boolean; }
  bool is_float() override { return kind_ == Kind::floating; }
  bool has_hint() override { return true; }
  bool is_constant() override { return false; }
  bool is_symbolic() override { return true; }

  SymNode add(const SymNode& other) override {
    return combine(other, std::plus<Size>(), std::plus<double>());
  }
  SymNode sub(const SymNode& other) override {
    return combine(other, std::minus<Size>(), std::minus<double>());
  }
  SymNode mul(const SymNode& other) override {
    return combine(other, std::multiplies<Size>(), std::multiplies<double>());
  }
  SymNode floordiv(const SymNode& other) override {
    return combine(other, floor_div, [](double a, double b) { return std::floor(a / b); });
  }
  SymNode mod(const SymNode& other) override {
    return combine(other, modulo, [](double a, double b) { return a - std::floor(a / b) * b; });
  }
  SymNode sym_min(const SymNode& other) override {
    return combine(other, smelt::min, [](double a, double b) { return std::min(a, b); });
  }
  SymNode sym_max(const SymNode& other) override {
    return combine(other, smelt::max, [](double a, double b) { return std::max(a, b); });
  }
  SymNode pow(const SymNode& other) override { return number(std::pow(value(), value_of(other))); }
  SymNode pow_by_natural(const SymNode& other) override {
    Size product = 1;
    for (int64_t left = symbols_->specialise(of(other)); left > 0; --left)
      product = product * size_;
    return make(product);
  }
  SymNode neg() override { return is_float() ? number(-number_) : make(Size(0) - size_); }
  SymNode ceil() override { return is_float() ? rounded(std::ceil(number_)) : make(size_); }
  SymNode floor() override { return is_float() ? rounded(std::floor(number_)) : make(size_); }
  SymNode clone() override { return c10::make_intrusive<SizeNode>(*this); }

  SymNode eq(const SymNode& other) override { return ask(Relation::eq, other); }
  SymNode ne(const SymNode& other) override { return ask(Relation::ne, other); }
  SymNode gt(const SymNode& other) override { return ask(Relation::gt, other); }
  SymNode lt(const SymNode& other) override { return ask(Relation::lt, other); }
  SymNode le(const SymNode& other) override { return ask(Relation::le, other); }
  SymNode ge(const SymNode& other) override { return ask(Relation::ge, other); }

  // Both sides are decided at once: a disjunction as such is not kept.
  SymNode sym_or(const SymNode& other) override {
    return decided(bool_() || other->guard_bool(__FILE__, __LINE__));
  }
  SymNode sym_and(const SymNode& other) override {
    return decided(bool_() && other->guard_bool(__FILE__, __LINE__));
  }
  SymNode sym_not() override { return decided(!bool_()); }

  SymNode truediv(const SymNode& other) override { return number(value() / value_of(other)); }
  SymNode sym_float() override { return number(value()); }

  SymNode wrap_int(int64_t value) override { return make(Size(value)); }
  SymNode wrap_bool(bool value) override { return decided(value); }
  SymNode wrap_float(double value) override { return number(value); }

  SymNode is_contiguous(at::ArrayRef<SymNode> sizes, at::ArrayRef<SymNode> strides) override {
    std::vector<int> order(sizes.size());
    std::iota(order.rbegin(), order.rend(), 0);
    return decided(is_dense_in(order, sizes, strides));
  }
  SymNode is_channels_last_contiguous_2d(at::ArrayRef<SymNode> sizes,
                                         at::ArrayRef<SymNode> strides) override {
    return decided(sizes.size() == 4 && is_dense_in({1, 3, 2, 0}, sizes, strides));
  }
  SymNode is_channels_last_contiguous_3d(at::ArrayRef<SymNode> sizes,
                                         at::ArrayRef<SymNode> strides) override {
    return decided(sizes.size() == 5 && is_dense_in({1, 4, 3, 2, 0}, sizes, strides));
  }
  SymNode is_channels_last_strides_2d(at::ArrayRef<SymNode> sizes,
                                      at::ArrayRef<SymNode> strides) override {
    return decided(is_channels_last_strides({1, 3, 2, 0}, sizes, strides));
  }
  SymNode is_channels_last_strides_3d(at::ArrayRef<SymNode> sizes,
                                      at::ArrayRef<SymNode> strides) override {
    return decided(is_channels_last_strides({1, 4, 3, 2, 0}, sizes, strides));
  }
  SymNode is_non_overlapping_and_dense(at::ArrayRef<SymNode> sizes,
                                       at::ArrayRef<SymNode> strides) override {
    std::vector<int> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return hint(strides[a]) < hint(strides[b]); });
    return decided(is_dense_in(order, sizes, strides));
  }

  int64_t guard_int(const char*, int64_t) override { return symbols_->specialise(size_); }
  bool guard_bool(const char*, int64_t) override { return bool_(); }
  double guard_float(const char*, int64_t) override { return number_; }
  int64_t int_() override { return symbols_->specialise(size_); }
  bool bool_() override {
    return symbols_->holds(condition_.left, condition_.relation, condition_.right);
  }
  std::string str() override { return is_float() ? std::to_string(number_) : size_.str(); }
  std::optional<int64_t> maybe_as_int() override {
    return is_int() ? size_.as_known() : std::nullopt;
  }

 private:
  SymNode make(Size size) const { return c10::make_intrusive<SizeNode>(std::move(size), symbols_); }
  SymNode number(double value) const { return c10::make_intrusive<SizeNode>(value, symbols_); }
  SymNode rounded(double value) const { return make(Size(static_cast<int64_t>(value))); }
  SymNode decided(bool value) const {
    return c10::make_intrusive<SizeNode>(Condition{Size(value ? 1 : 0), Size(1), Relation::eq},
                                         symbols_);
  }
  SymNode ask(Relation relation, const SymNode& other) {
    if (is_number(other)) return decided(compare_numbers(value(), relation, value_of(other)));
    return c10::make_intrusive<SizeNode>(Condition{size_, of(other), relation}, symbols_);
  }

  // Sizes stay symbolic under integer arithmetic. With a float in it, Python computes a number: the
  // sizes are pinned.
  template <class OnSizes, class OnNumbers>
  SymNode combine(const SymNode& other, const OnSizes& sizes, const OnNumbers& numbers) {
    if (is_number(other)) return number(numbers(value(), value_of(other)));
    return make(sizes(size_, of(other)));
  }
  bool is_number(const SymNode& other) { return is_float() || other->is_float(); }
  double value() { return is_float() ? number_ : static_cast<double>(symbols_->specialise(size_)); }
  double value_of(const SymNode& node) const {
    if (auto* own = dynamic_cast<SizeNode*>(node.get())) return own->value();
    return static_cast<double>(symbols_->specialise(of(node)));
  }
  static bool compare_numbers(double a, Relation relation, double b) {
    switch (relation) {
      case Relation::eq: return a == b;
      case Relation::ne: return a != b;
      case Relation::lt: return a < b;
      case Relation::le: return a <= b;
      case Relation::gt: return a > b;
      case Relation::ge: return a >= b;
    }
    return false;
  }
  static Size of(const SymNode& node) {
    if (auto* own = dynamic_cast<SizeNode*>(node.get())) return own->size_;
    if (auto value = node->maybe_as_int()) return Size(*value);
    throw Error(
        "a symbolic size of another tracer (torch.compile, torch.export) met a smelt recording");
  }
  int64_t hint(const SymNode& node) const { return symbols_->hint(of(node)); }

  // Do the strides count up densely when the dimensions are walked in this order, innermost first?
  bool is_dense_in(const std::vector<int>& order, at::ArrayRef<SymNode> sizes,
                   at::ArrayRef<SymNode> strides) const {
    Size expected = 1;
    for (int dim : order) {
      const Size size = of(sizes[dim]);
      if (symbols_->holds(size, Relation::eq, 1)) continue;
      if (!symbols_->holds(of(strides[dim]), Relation::eq, expected)) return false;
      expected = expected * size;
    }
    return true;
  }
  // As c10::is_channels_last_strides_*: strides grow along the order, and a plain NCHW tensor is
  // not one.
  bool is_channels_last_strides(const std::vector<int>& order, at::ArrayRef<SymNode> sizes,
                                at::ArrayRef<SymNode> strides) const {
    if (sizes.size() != order.size() || symbols_->holds(of(strides[1]), Relation::eq, 0))
      return false;
    Size least = 0;
    for (int dim : order) {
      const Size size = of(sizes[dim]), stride = of(strides[dim]);
      if (symbols_->holds(size, Relation::eq, 0) || symbols_->holds(stride, Relation::lt, least))
        return false;
      if (dim == 0 && least == of(strides[1])) return false;
      least = symbols_->holds(size, Relation::gt, 1) ? stride * size : stride;
    }
    return true;
  }

  Kind kind_ = Kind::integer;
  Size size_;
  Condition condition_;
  double number_ = 0;
  SymbolsPtr symbols_;
};

}  // namespace

c10::SymInt to_sym_int(const Size& size, const SymbolsPtr& symbols) {
  if (auto known = size.as_known()) return c10::SymInt(*known);
  return c10::SymInt(SymNode(c10::make_intrusive<SizeNode>(size, symbols)));
}

std::vector<c10::SymInt> to_sym_ints(std::span<const Size> sizes, const SymbolsPtr& symbols) {
  std::vector<c10::SymInt> out;
  out.reserve(sizes.size());
  for (const Size& size : sizes) out.push_back(to_sym_int(size, symbols));
  return out;
}

Size to_size(const c10::SymInt& value) {
  if (auto known = value.maybe_as_int()) return Size(*known);
  if (auto* own = dynamic_cast<SizeNode*>(value.toSymNodeImplUnowned())) return own->size();
  throw Error(
      "a symbolic size of another tracer (torch.compile, torch.export) met a smelt recording");
}

}  // namespace smelt
