#include "ops/rules/shape_query.h"

#include "base/error.h"
#include "ops/rules/not_literal.h"

namespace smelt {
namespace {

// The type of a number in a tensor's place: torch wraps it in a 0-dim CPU tensor of the widest
// type.
TensorType wrapped_type(const Arg& number) {
  TensorType type;
  type.wrapped_number = true;
  if (number.is<bool>()) {
    type.dtype = DType::b8;
  } else if (number.is<Size>()) {
    type.dtype = DType::i64;
  } else if (number.is<double>()) {
    type.dtype = DType::f64;
  } else {
    type.dtype = DType::c128;
  }
  return type;
}

// Literals only: a tensor here is a number that nobody knows yet.
void check_literal(bool literal, const Arg& arg, const char* what) {
  if (arg.is<Ref>()) throw NotLiteral("it needs the value of a number that changes");
  SMELT_CHECK(literal, std::string(what) + str(arg));
}

int64_t value_of(const Size& size, SymbolTable& symbols) {
  return size.is_known() ? size.known() : symbols.specialise(size);
}

}  // namespace

TensorType ShapeQuery::tensor(size_t i) const {
  const Arg& arg = args_[i];
  if (arg.is<Ref>()) return types_[arg.get<Ref>().id];
  SMELT_CHECK(arg.is_number(), "neither a tensor nor a number: " + str(arg));
  return wrapped_type(arg);
}

std::vector<TensorType> ShapeQuery::tensors(size_t i) const {
  std::vector<TensorType> types;
  for (const Arg& item : args_[i].get<ArgList>()) {
    if (item.is<Ref>()) types.push_back(types_[item.get<Ref>().id]);
  }
  return types;
}

int64_t ShapeQuery::integer(size_t i) const { return value_of(size_at(i), symbols_); }

Size ShapeQuery::size_at(size_t i) const {
  check_literal(args_[i].is<Size>(), args_[i], "not an integer: ");
  return args_[i].get<Size>();
}

Sizes ShapeQuery::sizes(size_t i) const {
  const Arg& arg = args_[i];
  if (arg.is<Size>()) return {arg.get<Size>()};
  check_literal(arg.is<ArgList>(), arg, "not a list of integers: ");
  Sizes sizes;
  for (const Arg& item : arg.get<ArgList>()) {
    check_literal(item.is<Size>(), item, "not a list of integers: ");
    sizes.push_back(item.get<Size>());
  }
  return sizes;
}

std::vector<int64_t> ShapeQuery::integers(size_t i) const {
  std::vector<int64_t> values;
  for (const Size& size : sizes(i)) values.push_back(value_of(size, symbols_));
  return values;
}

bool ShapeQuery::boolean(size_t i) const {
  check_literal(args_[i].is<bool>(), args_[i], "not a bool: ");
  return args_[i].get<bool>();
}

double ShapeQuery::number(size_t i) const {
  const Arg& arg = args_[i];
  if (arg.is<double>()) return arg.get<double>();
  if (arg.is<bool>()) return arg.get<bool>() ? 1 : 0;
  if (arg.is<std::complex<double>>()) return arg.get<std::complex<double>>().real();
  return static_cast<double>(integer(i));
}

std::optional<DType> ShapeQuery::dtype(size_t i) const {
  if (is_none(i)) return std::nullopt;
  return args_[i].get<DType>();
}

std::optional<Device> ShapeQuery::device(size_t i) const {
  if (is_none(i)) return std::nullopt;
  return args_[i].get<Device>();
}

std::optional<MemoryFormat> ShapeQuery::format(size_t i) const {
  if (is_none(i)) return std::nullopt;
  return args_[i].get<MemoryFormat>();
}

std::string_view ShapeQuery::text(size_t i) const {
  if (is_none(i)) return {};
  return args_[i].get<std::string>();
}

}  // namespace smelt
