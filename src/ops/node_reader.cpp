#include "ops/meaning.h"

namespace smelt {

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
  SMELT_CHECK(arg(i).is<Size>(), "not an integer: " + str(arg(i)));
  return arg(i).get<Size>();
}

Sizes NodeReader::sizes(size_t i) const {
  if (is_none(i)) return {};
  if (arg(i).is<Size>()) return {arg(i).get<Size>()};
  Sizes sizes;
  for (const Arg& item : arg(i).get<ArgList>()) {
    SMELT_CHECK(item.is<Size>(), "not a list of integers: " + str(arg(i)));
    sizes.push_back(item.get<Size>());
  }
  return sizes;
}

bool NodeReader::boolean(size_t i) const {
  SMELT_CHECK(arg(i).is<bool>(), "not a bool: " + str(arg(i)));
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
