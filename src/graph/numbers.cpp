#include "graph/numbers.h"

#include <cmath>
#include <limits>

namespace smelt::numbers {
namespace {

bool is_whole(DType dtype) { return dtype == DType::i64 || dtype == DType::b8; }

// The largest finite number; infinity where each double is one, or it is no matter.
double highest(DType dtype) {
  switch (dtype) {
    case DType::f16:
    case DType::c32: return 65504;
    case DType::bf16: return 0x1.fep127;
    case DType::f32:
    case DType::c64: return std::numeric_limits<float>::max();
    case DType::f64:
    case DType::c128: return std::numeric_limits<double>::infinity();
    default: return 0;  // float8: left to PyTorch
  }
}

struct Range {
  int64_t low, high;
};

std::optional<Range> range_of(DType dtype) {
  switch (dtype) {
    case DType::u8: return Range{0, UINT8_MAX};
    case DType::i8: return Range{INT8_MIN, INT8_MAX};
    case DType::u16: return Range{0, UINT16_MAX};
    case DType::i16: return Range{INT16_MIN, INT16_MAX};
    case DType::u32: return Range{0, UINT32_MAX};
    case DType::i32: return Range{INT32_MIN, INT32_MAX};
    case DType::u64: return Range{0, INT64_MAX};
    case DType::i64: return Range{INT64_MIN, INT64_MAX};
    default: return std::nullopt;
  }
}

std::optional<DType> power_of_ints(const Operand& exponent) {
  if (!exponent.value) return std::nullopt;
  return to_int(*exponent.value) < 0 ? DType::f64 : DType::i64;
}

}  // namespace

bool is_check(OpName op) { return op == kExpect || op == kFits; }

bool is_number_op(OpName op) { return op == kCompute || op == kItem || is_check(op); }

DType dtype_of(const Number& number) {
  if (std::holds_alternative<bool>(number)) return DType::b8;
  return is_float(number) ? DType::f64 : DType::i64;
}

TensorType type_of(DType dtype) {
  TensorType type;
  type.dtype = dtype;
  type.wrapped_number = true;
  return type;
}

bool takes_number(const Graph& graph, const Node& node) {
  bool found = false;
  for (const Arg& arg : node.args)
    each_ref(arg, [&](Ref ref) { found |= is_number(graph.type(ref.id)); });
  return found;
}

Arg to_arg(const Number& number) {
  if (std::holds_alternative<bool>(number)) return Arg(std::get<bool>(number));
  if (is_float(number)) return Arg(to_double(number));
  return Arg(Size(to_int(number)));
}

std::optional<Number> literal(const Arg& arg) {
  if (arg.is<bool>()) return arg.get<bool>();
  if (arg.is<double>()) return arg.get<double>();
  if (arg.is<Size>() && arg.get<Size>().is_known()) return arg.get<Size>().known();
  return std::nullopt;
}

std::optional<DType> result_of(NumberOp op, const Operand& a, const Operand& b) {
  const DType whole =
      is_whole(a.dtype) && (is_unary(op) || is_whole(b.dtype)) ? DType::i64 : DType::f64;
  switch (op) {
    case NumberOp::eq:
    case NumberOp::ne:
    case NumberOp::lt:
    case NumberOp::le:
    case NumberOp::gt:
    case NumberOp::ge:
    case NumberOp::truth:
    case NumberOp::negation: return DType::b8;
    case NumberOp::div:
    case NumberOp::as_float: return DType::f64;
    case NumberOp::as_int: return DType::i64;
    case NumberOp::min:
    case NumberOp::max: return a.dtype == b.dtype ? std::optional(a.dtype) : std::nullopt;
    case NumberOp::pow: return whole == DType::i64 ? power_of_ints(b) : DType::f64;
    default: return whole;
  }
}

bool fits(const Number& number, DType dtype) {
  if (dtype == DType::b8) return true;
  if (const std::optional<Range> range = range_of(dtype)) {
    if (!is_float(number)) return to_int(number) >= range->low && to_int(number) <= range->high;
    const double value = std::trunc(to_double(number));
    // The largest i64 is no double.
    return value >= static_cast<double>(range->low) &&
           (range->high == INT64_MAX ? value < 0x1p63 : value <= static_cast<double>(range->high));
  }
  const double value = to_double(number);
  return !std::isfinite(value) || std::abs(value) <= highest(dtype);
}

bool may_not_fit(DType number, DType dtype) {
  if (number == DType::b8 || dtype == DType::b8 || number == dtype) return false;
  if (number == DType::f64) return dtype != DType::c128;
  return bytes_of(dtype) < 8 && dtype != DType::f32 && dtype != DType::bf16;
}

}  // namespace smelt::numbers
