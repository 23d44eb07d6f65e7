#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "codegen/cuda/emitter.h"

namespace smelt::cuda {

std::string value_type(DType dtype) {
  return dtype == DType::b8 ? "bool" : std::string(name_of(dtype));
}
std::string memory_type(DType dtype) {
  return dtype == DType::b8 ? "u8" : std::string(name_of(dtype));
}

namespace {

template <class T>
std::string digits_of(T number) {
  char digits[40];
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string in_parentheses(std::string text) {
  return text.starts_with('-') ? "(" + text + ")" : text;
}

// The function of CUDA that a floating op is, without the f of single precision.
std::string function_of(Op op) {
  switch (op) {
    case Op::round: return "rint";
    case Op::abs: return "fabs";
    default: return std::string(loops::facts_of(op).name);
  }
}

std::string call(const std::string& function, const std::string& a, const std::string& b = "") {
  return function + "(" + a + (b.empty() ? "" : ", " + b) + ")";
}

const char* infix(Op op) {
  switch (op) {
    case Op::add: return " + ";
    case Op::sub: return " - ";
    case Op::mul: return " * ";
    case Op::div: return " / ";
    case Op::bit_and: return " & ";
    case Op::bit_or: return " | ";
    case Op::bit_xor: return " ^ ";
    case Op::lt: return " < ";
    case Op::le: return " <= ";
    case Op::eq: return " == ";
    case Op::ne: return " != ";
    default: return nullptr;
  }
}

std::string floating_op(Op op, DType dtype, const std::string& a, const std::string& b) {
  if (const char* symbol = infix(op)) return a + symbol + b;
  switch (op) {
    case Op::neg: return "-" + a;
    case Op::min: return call("min_of", a, b);
    case Op::max: return call("max_of", a, b);
    case Op::mod: return call("mod", a, b);
    case Op::sigmoid: return call("sigmoid", a);
    default: break;
  }
  return call(function_of(op) + (dtype == DType::f32 ? "f" : ""), a, b);
}

std::string integral_op(Op op, DType dtype, const std::string& a, const std::string& b) {
  const std::string type = value_type(dtype);
  switch (op) {
    case Op::lt:
    case Op::le:
    case Op::eq:
    case Op::ne: return a + infix(op) + b;
    case Op::bit_and:
    case Op::bit_or:
    case Op::bit_xor: return "static_cast<" + type + ">(" + a + infix(op) + b + ")";
    case Op::bit_not: return dtype == DType::b8 ? "!" + a : "static_cast<" + type + ">(~" + a + ")";
    case Op::min: return call("min_of<" + type + ">", a, b);
    case Op::max: return call("max_of<" + type + ">", a, b);
    case Op::abs: return call("abs_of<" + type + ">", a);
    default: break;
  }
  return call(std::string(loops::facts_of(op).name) + "<" + type + ">", a, b);
}

// Those of b8 that a template of integers would get wrong are functions of their own.
std::string boolean_op(Op op, const std::string& a, const std::string& b) {
  switch (op) {
    case Op::add:
    case Op::max:
    case Op::bit_or: return a + " || " + b;
    case Op::mul:
    case Op::min:
    case Op::bit_and: return a + " && " + b;
    case Op::bit_xor: return a + " != " + b;
    case Op::abs: return a;
    default: return integral_op(op, DType::b8, a, b);
  }
}

}  // namespace

std::string Emitter::literal(const Inst& inst) const {
  if (inst.dtype == DType::b8) return inst.integer != 0 ? "true" : "false";
  if (inst.dtype == DType::i64) {
    if (inst.integer == std::numeric_limits<int64_t>::min()) return "Limits<i64>::lowest()";
    return in_parentheses(std::to_string(inst.integer) + "ll");
  }
  if (!is_floating(inst.dtype)) {
    if (inst.dtype == DType::i32 && inst.integer == std::numeric_limits<int32_t>::min())
      return "Limits<i32>::lowest()";
    return call("static_cast<" + value_type(inst.dtype) + ">", std::to_string(inst.integer));
  }
  const double number = inst.dtype == DType::f32 ? static_cast<float>(inst.number) : inst.number;
  const std::string type = value_type(inst.dtype);
  if (std::isnan(number))
    return inst.dtype == DType::f32 ? "__int_as_float(0x7fc00000)"
                                    : "__longlong_as_double(0x7ff8000000000000ll)";
  if (std::isinf(number)) return "Limits<" + type + (number > 0 ? ">::highest()" : ">::lowest()");
  return in_parentheses(inst.dtype == DType::f32 ? digits_of(static_cast<float>(number)) + "f"
                                                 : digits_of(number));
}

std::string Emitter::ref(Val value) const {
  const Inst& inst = kernel_.insts[value];
  if (inst.op == Op::constant) return literal(inst);
  return "v" + number(value) + (array_[value] ? "[lane]" : "");
}

std::string Emitter::loaded(const Inst& inst, const std::string& element) const {
  return inst.dtype == DType::b8 ? element + " != 0" : element;
}

std::string Emitter::expression(const Inst& inst) const {
  const int arguments = loops::facts_of(inst.op).arguments;
  const std::string a = arguments > 0 ? ref(inst.args[0]) : "";
  const std::string b = arguments > 1 ? ref(inst.args[1]) : "";
  const std::string type = value_type(inst.dtype);
  switch (inst.op) {
    case Op::param: {
      const std::string bits = "param" + std::to_string(inst.slot);
      return "cast<" + type + ">(" +
             (is_floating(inst.dtype) ? call("__longlong_as_double", bits) : bits) + ")";
    }
    case Op::index: {
      const auto range = inst.index.range({extents_});
      const bool narrow =
          range && range->low > -(int64_t{1} << 30) && range->high < int64_t{1} << 30;
      return "static_cast<i64>(" + index_text(inst.index, in_lane_, !narrow) + ")";
    }
    case Op::load: return loaded(inst, element_text(inst, in_lane_));
    case Op::check: {
      const std::string used = plan_.columns            ? "active"
                               : in_scan_               ? "inside"
                               : plan_.tail && in_lane_ ? "lane < count"
                                                        : "true";
      return "check_index(" + a + ", " + size_text(inst.bound) + ", " + used + ", \"" + name_ +
             "\")";
    }
    case Op::cast: return "cast<" + type + ">(" + a + ")";
    case Op::select: return a + " ? " + b + " : " + ref(inst.args[2]);
    case Op::random_bits:
    case Op::random_normal:
      return std::string(loops::facts_of(inst.op).name) + "(" + a + ", " + b + ", " +
             ref(inst.args[2]) + ")";
    default: break;
  }
  const DType dtype = kernel_.insts[inst.args[0]].dtype;
  if (is_floating(dtype)) return floating_op(inst.op, dtype, a, b);
  if (dtype == DType::b8) return boolean_op(inst.op, a, b);
  return integral_op(inst.op, dtype, a, b);
}

}  // namespace smelt::cuda
