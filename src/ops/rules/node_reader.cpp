#include "ops/rules/node_reader.h"
#include "ops/rules/not_literal.h"

namespace smelt {
namespace {

// Literals only: a tensor here is a number that nobody knows yet.
void check_literal(bool literal, const Arg& arg, const char* what) {
  if (arg.is<Ref>()) throw NotLiteral("it needs the value of a number that changes");
  SMELT_CHECK(literal, std::string(what) + str(arg));
}

}  // namespace

std::vector<ValueId> NodeReader::values(size_t i) const {
  std::vector<ValueId> values;
  for (const Arg& item : arg(i).get<ArgList>()) {
    if (item.is<Ref>()) values.push_back(item.get<Ref>().id);
  }
  return values;
}

int64_t NodeReader::integer(size_t i) const { return size_at(i).known(); }

int64_t NodeReader::integer(size_t i, int64_t if_none) const {
  return is_none(i) ? if_none : integer(i);
}

std::vector<int64_t> NodeReader::integers(size_t i) const {
  std::vector<int64_t> values;
  for (const Size& size : sizes(i)) values.push_back(size.known());
  return values;
}

Size NodeReader::size_at(size_t i) const {
  check_literal(arg(i).is<Size>(), arg(i), "not an integer: ");
  return arg(i).get<Size>();
}

Sizes NodeReader::sizes(size_t i) const {
  if (is_none(i)) return {};
  if (arg(i).is<Size>()) return {arg(i).get<Size>()};
  check_literal(arg(i).is<ArgList>(), arg(i), "not a list of integers: ");
  Sizes sizes;
  for (const Arg& item : arg(i).get<ArgList>()) {
    check_literal(item.is<Size>(), item, "not a list of integers: ");
    sizes.push_back(item.get<Size>());
  }
  return sizes;
}

bool NodeReader::boolean(size_t i) const {
  check_literal(arg(i).is<bool>(), arg(i), "not a bool: ");
  return arg(i).get<bool>();
}

bool NodeReader::boolean(size_t i, bool if_none) const { return is_none(i) ? if_none : boolean(i); }

double NodeReader::number(size_t i) const {
  if (arg(i).is<double>()) return arg(i).get<double>();
  if (arg(i).is<bool>()) return arg(i).get<bool>() ? 1 : 0;
  return static_cast<double>(integer(i));
}

double NodeReader::number(size_t i, double if_none) const {
  return is_none(i) ? if_none : number(i);
}

std::string_view NodeReader::text(size_t i) const {
  if (is_none(i)) return {};
  return arg(i).get<std::string>();
}

}  // namespace smelt
