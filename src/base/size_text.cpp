// Reads sizes with Python's precedence: sum := product (('+' | '-') product)*,
// product := ['-'] atom (('*' | '//' | '%') atom)*, atom := number | s<index> | '(' sum ')' |
// min(sum, sum) | max(...).
#include "base/error.h"
#include "base/reader.h"
#include "base/size.h"

namespace smelt {
namespace {

constexpr std::string_view kExpected = "a size, as 4 or 2*s0+1";

Size read_number(Reader& reader) {
  size_t start = reader.place();
  uint64_t magnitude = reader.natural(kExpected);
  // 2^63 is let through for the sake of -2^63: negated, it wraps around to that.
  if (magnitude > uint64_t{1} << 63) reader.fail_at(start, "the number does not fit into 64 bits");
  return static_cast<int64_t>(magnitude);
}

Size read_atom(Reader& reader) {
  if (reader.next_is_digit()) return read_number(reader);
  if (reader.accept("(")) {
    Size inner = read_size(reader);
    reader.expect(")");
    return inner;
  }
  size_t start = reader.place();
  std::string_view word = reader.word(kExpected);
  if (word == "min" || word == "max") {
    reader.expect("(");
    Size left = read_size(reader);
    reader.expect(",");
    Size right = read_size(reader);
    reader.expect(")");
    return word == "min" ? min(left, right) : max(left, right);
  }
  Reader digits(word.substr(1));
  if (word[0] != 's' || !digits.next_is_digit())
    reader.fail_at(start,
                   "expected " + std::string(kExpected) + ", found '" + std::string(word) + "'");
  int32_t index = digits.index("the index of a symbol");
  if (!digits.at_end())
    reader.fail_at(start, "expected a symbol, as s0, found '" + std::string(word) + "'");
  return Size::symbol(index);
}

Size read_product(Reader& reader) {
  // As in Python a sign binds before // does: -5//2 is (-5)//2.
  Size result = reader.accept("-") ? Size(0) - read_atom(reader) : read_atom(reader);
  while (true) {
    if (reader.accept("*")) {
      result = result * read_atom(reader);
    } else if (reader.next_is("//") || reader.next_is("%")) {
      bool division = reader.accept("//") || !reader.accept("%");
      size_t start = reader.place();
      Size divisor = read_atom(reader);
      if (divisor.is(0)) reader.fail_at(start, "a size is divided by zero");
      result = division ? floor_div(result, divisor) : modulo(result, divisor);
    } else {
      return result;
    }
  }
}

}  // namespace

Size read_size(Reader& reader) {
  Size result = read_product(reader);
  while (true) {
    if (reader.accept("+"))
      result = result + read_product(reader);
    else if (reader.accept("-"))
      result = result - read_product(reader);
    else
      return result;
  }
}

std::optional<Size> Size::parse(std::string_view text) {
  Reader reader(text);
  try {
    Size result = read_size(reader);
    if (reader.at_end()) return result;
  } catch (const Error&) {
  }
  return std::nullopt;
}

}  // namespace smelt
