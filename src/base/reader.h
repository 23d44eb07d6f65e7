// A cursor over one of smelt's text forms. Everything that parses reads through it, so that every
// error says the line, the column and what was expected there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace smelt {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  // All of these skip blanks first, but never the end of a line.
  bool at_end();
  bool accept(std::string_view symbol);  // takes it if it comes next
  void expect(std::string_view symbol);
  bool next_is(std::string_view symbol);
  bool next_is_digit();
  // A name of letters, digits, '_' and the `extra` characters that does not begin with a digit.
  std::string_view word(std::string_view expected, std::string_view extra = "");
  std::string_view peek_word(std::string_view extra = "");  // empty if none comes next
  bool accept_word(std::string_view word);
  uint64_t natural(std::string_view expected);
  int32_t index(std::string_view expected);       // a natural number, or -1
  std::string quoted(std::string_view expected);  // a string as quote() writes it
  // What stands before the next blank or character of `ends`; takes nothing.
  std::string_view rest_until(std::string_view ends);
  void skip(size_t characters) { at_ += characters; }

  // Ends the line, and skips the empty ones after it. Returns the line's comment without "# ".
  std::string end_line();
  void skip_empty_lines();  // and those with only a comment

  // Errors about what stands here, or at a place() taken before.
  size_t place();
  [[noreturn]] void fail(std::string_view expected);
  [[noreturn]] void fail_at(size_t place, const std::string& message);

 private:
  void skip_blanks();
  std::string comment();

  std::string_view text_;
  size_t at_ = 0;
};

// The text between quotation marks, with what would end it or hide in it escaped.
std::string quote(std::string_view text);

}  // namespace smelt
