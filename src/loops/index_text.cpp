// The text of an index:
//   index  := ['-'] term (('+' | '-') term)*
//   term   := factor ('*' factor)*               of which at most one is not a size
//   factor := number | s<n> | i<n> | v<n> | min(index, index) | max(index, index)
//           | '(' index ')' | '(' index ('//' | '%') factor ')'
// Sizes are written as everywhere else. What is read is not simplified, so that it stays what was
// written.
#include <charconv>

#include "base/error.h"
#include "base/reader.h"
#include "loops/index.h"

namespace smelt::loops {
namespace {

constexpr std::string_view kExpected = "an index, as 16*i0 + i1";

// In parentheses unless it is one number or symbol.
std::string factor_text(const Size& size) {
  std::string text = size.str();
  bool plain = size.is_known() ? size.known() >= 0 : size.as_symbol().has_value();
  return plain ? text : "(" + text + ")";
}

std::string atom_text(const Atom& atom) {
  if (atom.kind == Atom::Kind::dim) return "i" + std::to_string(atom.id);
  if (atom.kind == Atom::Kind::value) return "v" + std::to_string(atom.id);
  std::string inner = atom.inner->str();
  const std::vector<Term>& terms = atom.inner->terms();
  bool plain = terms.size() == 1 && terms[0].stride.is(1) && atom.inner->constant().is(0);
  if (!plain) inner = "(" + inner + ")";
  return "(" + inner + (atom.kind == Atom::Kind::quotient ? " // " : " % ") +
         factor_text(atom.divisor) + ")";
}

void append_term(std::string& text, const Term& term) {
  Size stride = term.stride;
  bool negative = stride.is_known() && stride.known() < 0;
  if (negative) stride = stride * -1;
  if (text.empty())
    text += negative ? "-" : "";
  else
    text += negative ? " - " : " + ";
  if (!stride.is(1)) text += factor_text(stride) + "*";
  text += atom_text(term.atom);
}

int32_t read_number(std::string_view word, Reader& reader, size_t place) {
  int32_t number = 0;
  auto [end, problem] = std::from_chars(word.data() + 1, word.data() + word.size(), number);
  if (problem != std::errc() || end != word.data() + word.size() || number < 0) {
    reader.fail_at(place,
                   "expected " + std::string(kExpected) + ", found '" + std::string(word) + "'");
  }
  return number;
}

Index read_factor(Reader& reader);

Index divided(const Index& inner, bool quotient, Reader& reader) {
  size_t place = reader.place();
  Index divisor = read_factor(reader);
  if (!divisor.is_constant()) reader.fail_at(place, "an index is divided by a size");
  const Size& size = divisor.constant();
  if (size.is(0)) reader.fail_at(place, "an index is divided by zero");
  if (inner.is_constant())
    return quotient ? floor_div(inner.constant(), size) : modulo(inner.constant(), size);
  return of_atom({quotient ? Atom::Kind::quotient : Atom::Kind::remainder, 0,
                  std::make_shared<const Index>(inner), size});
}

Index read_factor(Reader& reader) {
  size_t place = reader.place();
  if (reader.accept("(")) {
    Index inner = Index::read(reader);
    if (reader.accept("//"))
      inner = divided(inner, true, reader);
    else if (reader.accept("%"))
      inner = divided(inner, false, reader);
    reader.expect(")");
    return inner;
  }
  std::string_view word = reader.peek_word();
  if (!word.empty() && (word[0] == 'i' || word[0] == 'v')) {
    reader.skip(word.size());
    int32_t number = read_number(word, reader, place);
    return word[0] == 'i' ? Index::dim(number) : Index::value(number);
  }
  if (word == "min" || word == "max") {
    reader.skip(word.size());
    reader.expect("(");
    Size left = read_size(reader);
    reader.expect(",");
    Size right = read_size(reader);
    reader.expect(")");
    return word == "min" ? min(left, right) : max(left, right);
  }
  if (!word.empty()) {
    reader.skip(word.size());
    std::optional<Size> size = Size::parse(word);
    if (!size) reader.fail_at(place, "expected " + std::string(kExpected));
    return *size;
  }
  // 2^63 is let through for the sake of -2^63: negated, it wraps around to that.
  return static_cast<int64_t>(reader.natural(kExpected));
}

Index read_term(Reader& reader) {
  Index result = read_factor(reader);
  while (reader.next_is("*")) {
    size_t place = reader.place();
    reader.expect("*");
    Index factor = read_factor(reader);
    if (!result.is_constant() && !factor.is_constant())
      reader.fail_at(place, "an index is multiplied by a size");
    result = factor.is_constant() ? result * factor.constant() : factor * result.constant();
  }
  return result;
}

}  // namespace

std::string Index::str() const {
  std::string text;
  if (!constant_.is(0) || terms_.empty())
    text = constant_.is_known() ? std::to_string(constant_.known()) : factor_text(constant_);
  for (const Term& term : terms_) append_term(text, term);
  return text;
}

Index Index::read(Reader& reader) {
  Index result = reader.accept("-") ? read_term(reader) * -1 : read_term(reader);
  while (true) {
    if (reader.accept("+"))
      result = result + read_term(reader);
    else if (reader.accept("-"))
      result = result - read_term(reader);
    else
      return result;
  }
}

}  // namespace smelt::loops
