#include "base/reader.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>

#include "base/error.h"

namespace smelt {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

void Reader::skip_blanks() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r'))
    ++at_;
}

bool Reader::at_end() {
  skip_blanks();
  return at_ == text_.size();
}

bool Reader::next_is(std::string_view symbol) {
  skip_blanks();
  return text_.substr(at_).starts_with(symbol);
}

bool Reader::next_is_digit() {
  skip_blanks();
  return at_ < text_.size() && is_digit(text_[at_]);
}

bool Reader::accept(std::string_view symbol) {
  if (!next_is(symbol)) return false;
  at_ += symbol.size();
  return true;
}

void Reader::expect(std::string_view symbol) {
  if (!accept(symbol)) fail("'" + std::string(symbol) + "'");
}

std::string_view Reader::peek_word(std::string_view extra) {
  skip_blanks();
  size_t end = at_;
  while (end < text_.size() &&
         (is_letter(text_[end]) || extra.find(text_[end]) != std::string_view::npos ||
          (end > at_ && is_digit(text_[end])))) {
    ++end;
  }
  return text_.substr(at_, end - at_);
}

std::string_view Reader::word(std::string_view expected, std::string_view extra) {
  std::string_view result = peek_word(extra);
  if (result.empty()) fail(expected);
  at_ += result.size();
  return result;
}

bool Reader::accept_word(std::string_view word) {
  if (peek_word() != word) return false;
  at_ += word.size();
  return true;
}

uint64_t Reader::natural(std::string_view expected) {
  skip_blanks();
  uint64_t value = 0;
  auto [end, problem] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
  if (problem != std::errc()) fail(expected);
  at_ = end - text_.data();
  return value;
}

int32_t Reader::index(std::string_view expected) {
  if (accept("-1")) return -1;
  size_t start = place();
  uint64_t value = natural(expected);
  if (value > std::numeric_limits<int32_t>::max())
    fail_at(start, "expected " + std::string(expected) + ", this number is too large");
  return static_cast<int32_t>(value);
}

std::string_view Reader::rest_until(std::string_view ends) {
  skip_blanks();
  size_t end = at_;
  while (end < text_.size() && text_[end] != ' ' && ends.find(text_[end]) == std::string_view::npos)
    ++end;
  return text_.substr(at_, end - at_);
}

std::string Reader::quoted(std::string_view expected) {
  if (!accept("\"")) fail(expected);
  std::string result;
  for (; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
    if (text_[at_] == '"') {
      ++at_;
      return result;
    }
    if (text_[at_] != '\\') {
      result += text_[at_];
      continue;
    }
    char escape = ++at_ < text_.size() ? text_[at_] : '\0';
    int high = at_ + 2 < text_.size() ? hex_digit(text_[at_ + 1]) : -1;
    int low = at_ + 2 < text_.size() ? hex_digit(text_[at_ + 2]) : -1;
    if (escape == 'n') {
      result += '\n';
    } else if (escape == '"' || escape == '\\') {
      result += escape;
    } else if (escape == 'x' && high >= 0 && low >= 0) {
      result += static_cast<char>(high * 16 + low);
      at_ += 2;
    } else {
      fail("one of the escapes \\n \\\" \\\\ \\xhh");
    }
  }
  fail("'\"' at the end of the string");
}

std::string Reader::comment() {
  if (!accept("#")) return "";
  size_t end = std::min(text_.find('\n', at_), text_.size());
  std::string_view result = text_.substr(at_, end - at_);
  at_ = end;
  if (result.starts_with(' ')) result.remove_prefix(1);
  return std::string(result);
}

std::string Reader::end_line() {
  std::string first = comment();
  if (!at_end() && !next_is("\n")) fail("the end of the line");
  skip_empty_lines();
  return first;
}

void Reader::skip_empty_lines() {
  do {
    comment();
  } while (accept("\n"));
}

size_t Reader::place() {
  skip_blanks();
  return at_;
}

void Reader::fail(std::string_view expected) {
  size_t at = place();
  std::string_view rest = text_.substr(at);
  std::string_view found = rest.substr(0, std::min<size_t>(rest.find('\n'), 24));
  std::string what = !found.empty() ? "found '" + std::string(found) + "'"
                     : rest.empty() ? "found the end of the text"
                                    : "found the end of the line";
  fail_at(at, "expected " + std::string(expected) + ", " + what);
}

void Reader::fail_at(size_t place, const std::string& message) {
  std::string_view before = text_.substr(0, place);
  size_t line = std::count(before.begin(), before.end(), '\n') + 1;
  size_t column = place - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0: the first line
  throw Error("line " + std::to_string(line) + ", column " + std::to_string(column) + ": " +
              message);
}

std::string quote(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", c);
      result += escape;
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace smelt
