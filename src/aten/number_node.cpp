#include "aten/number_node.h"

#include <c10/core/SymBool.h>
#include <c10/core/SymFloat.h>
#include <c10/core/SymInt.h>
#include <c10/core/SymNodeImpl.h>

#include "base/error.h"
#include "graph/numbers.h"

namespace smelt {
namespace {

using c10::SymNode;

class NumberNode final : public c10::SymNodeImpl {
 public:
  explicit NumberNode(RecordedNumber number) : number_(std::move(number)) {}

  const RecordedNumber& number() const { return number_; }

  bool is_int() override { return number_.dtype == DType::i64; }
  bool is_bool() override { return number_.dtype == DType::b8; }
  bool is_float() override { return number_.dtype == DType::f64; }
  bool has_hint() override { return number_.example.has_value(); }
  bool is_symbolic() override { return true; }

  SymNode add(const SymNode& other) override { return compute(NumberOp::add, other); }
  SymNode sub(const SymNode& other) override { return compute(NumberOp::sub, other); }
  SymNode mul(const SymNode& other) override { return compute(NumberOp::mul, other); }
  SymNode truediv(const SymNode& other) override { return compute(NumberOp::div, other); }
  SymNode floordiv(const SymNode& other) override { return compute(NumberOp::floor_div, other); }
  SymNode mod(const SymNode& other) override { return compute(NumberOp::mod, other); }
  SymNode pow(const SymNode& other) override { return compute(NumberOp::pow, other); }
  SymNode sym_min(const SymNode& other) override { return compute(NumberOp::min, other); }
  SymNode sym_max(const SymNode& other) override { return compute(NumberOp::max, other); }
  SymNode neg() override { return compute(NumberOp::neg); }
  SymNode sym_float() override { return compute(NumberOp::as_float); }
  SymNode clone() override { return make(number_); }

  SymNode eq(const SymNode& other) override { return compute(NumberOp::eq, other); }
  SymNode ne(const SymNode& other) override { return compute(NumberOp::ne, other); }
  SymNode gt(const SymNode& other) override { return compute(NumberOp::gt, other); }
  SymNode lt(const SymNode& other) override { return compute(NumberOp::lt, other); }
  SymNode le(const SymNode& other) override { return compute(NumberOp::le, other); }
  SymNode ge(const SymNode& other) override { return compute(NumberOp::ge, other); }
  // Both sides are decided at once.
  SymNode sym_or(const SymNode& other) override {
    return wrap_bool(bool_() || other->guard_bool(__FILE__, __LINE__));
  }
  SymNode sym_and(const SymNode& other) override {
    return wrap_bool(bool_() && other->guard_bool(__FILE__, __LINE__));
  }
  SymNode sym_not() override { return compute(NumberOp::negation); }

  SymNode wrap_int(int64_t value) override { return wrap(value); }
  SymNode wrap_float(double value) override { return wrap(value); }
  SymNode wrap_bool(bool value) override { return wrap(value); }

  int64_t guard_int(const char*, int64_t) override { return to_int(known()); }
  double guard_float(const char*, int64_t) override { return to_double(known()); }
  bool guard_bool(const char*, int64_t) override { return bool_(); }
  int64_t int_() override { return to_int(known()); }
  bool bool_() override {
    NumberRecording& recording = of_recording();
    if (!number_.example) refuse(recording);
    const bool truth = std::get<bool>(*smelt::compute(NumberOp::truth, *number_.example));
    recording.expect(to_scalar(number_), truth);
    return truth;
  }
  std::string str() override {
    return number_.example ? smelt::str(*number_.example) : std::string("number");
  }
  std::optional<int64_t> maybe_as_int() override {
    if (number_.value >= 0 || !is_int()) return std::nullopt;
    return to_int(*number_.example);
  }

 private:
  static SymNode make(RecordedNumber number) {
    return c10::make_intrusive<NumberNode>(std::move(number));
  }
  template <class T>
  SymNode wrap(T value) const {
    const Number literal = value;
    return make({number_.recording, -1, numbers::dtype_of(literal), literal});
  }

  NumberRecording& of_recording() const {
    NumberRecording* recording = current_number_recording();
    if (!recording || recording->id() != number_.recording)
      throw Error("a number of a recording was used after the recording had ended");
    return *recording;
  }

  [[noreturn]] static void refuse(NumberRecording& recording, const std::string& reason) {
    recording.refuse(reason);
    throw InternalError("a recording went on after it was given up");
  }
  // Whoever needs the value of a number can't be part of the recording.
  [[noreturn]] static void refuse(NumberRecording& recording) {
    refuse(recording, recording.last_op() +
                          " asks for the value of a number that is known only when the graph runs");
  }
  const Number& known() const {
    if (number_.value >= 0) refuse(of_recording());
    return *number_.example;
  }

  SymNode compute(NumberOp op, const SymNode& other) {
    auto* own = dynamic_cast<NumberNode*>(other.get());
    if (!own) refuse(of_recording(), "a symbolic size meets a number of the recording");
    return node_of(of_recording().compute(op, to_scalar(number_), to_scalar(own->number_)));
  }
  SymNode compute(NumberOp op) {
    return node_of(of_recording().compute(op, to_scalar(number_), false));
  }
  SymNode node_of(const at::Scalar& scalar) const {
    if (const auto number = recorded_number(scalar)) return make(*number);
    const Number literal = *plain_number(scalar);
    return make({number_.recording, -1, numbers::dtype_of(literal), literal});
  }

  const RecordedNumber number_;
};

std::optional<RecordedNumber> number_of(const SymNode& node) {
  auto* own = dynamic_cast<NumberNode*>(node.get());
  return own ? std::optional(own->number()) : std::nullopt;
}

}  // namespace

at::Scalar to_scalar(const RecordedNumber& number) {
  if (number.value < 0) return to_scalar(*number.example);
  const SymNode node = c10::make_intrusive<NumberNode>(number);
  if (number.dtype == DType::f64) return at::Scalar(c10::SymFloat(node));
  if (number.dtype == DType::i64) return at::Scalar(c10::SymInt(node));
  return at::Scalar(c10::SymBool(node));
}

std::optional<RecordedNumber> recorded_number(const at::Scalar& scalar) {
  if (scalar.isSymFloat()) return number_of(scalar.toSymFloat().toSymNodeImpl());
  if (scalar.isSymInt()) return number_of(scalar.toSymInt().toSymNode());
  if (scalar.isSymBool()) return number_of(scalar.toSymBool().toSymNodeImpl());
  return std::nullopt;
}

std::optional<RecordedNumber> recorded_number(const c10::IValue& value) {
  if (value.isSymInt() || value.isSymFloat() || value.isSymBool())
    return recorded_number(value.toScalar());
  return std::nullopt;
}

at::Scalar to_scalar(const Number& number) {
  return std::visit([](auto value) { return at::Scalar(value); }, number);
}

std::optional<Number> plain_number(const at::Scalar& scalar) {
  if (scalar.isSymbolic() || scalar.isComplex()) return std::nullopt;
  if (scalar.isBoolean()) return scalar.toBool();
  if (scalar.isFloatingPoint()) return scalar.toDouble();
  return scalar.toLong();
}

}  // namespace smelt
