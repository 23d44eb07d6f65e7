// Symbolic sizes. A Size is an integer, known or an expression over symbols ("s0", the length of a
// dynamic dimension). Expressions are kept in one normal form, a polynomial with integer
// coefficients over atoms, so equal sizes compare equal: (s0*5)/5 is s0, s0+s0 is 2*s0.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace smelt {

class Polynomial;
class Reader;

class Size {
 public:
  Size() = default;
  Size(int64_t value) : value_(value) {}  // NOLINT: a size is first of all an integer
  static Size symbol(int index);          // printed s<index>

  bool is_known() const { return !form_; }
  // The integer of a known size; a check fails on an expression.
  int64_t known() const;
  std::optional<int64_t> as_known() const;
  bool is(int64_t value) const { return !form_ && value_ == value; }

  // The value when symbol i has values[i]. Division and remainder round down, as Python's.
  int64_t evaluate(std::span<const int64_t> values) const;
  // The index of the symbol if this is one symbol and nothing else.
  std::optional<int> as_symbol() const;
  bool uses_symbol(int index) const;
  // Highest symbol index used, -1 for a known size.
  int highest_symbol() const;

  std::string str() const;
  static std::optional<Size> parse(std::string_view text);

  friend Size operator+(const Size& a, const Size& b);
  friend Size operator-(const Size& a, const Size& b);
  friend Size operator*(const Size& a, const Size& b);
  friend Size floor_div(const Size& a, const Size& b);
  friend Size modulo(const Size& a, const Size& b);
  friend Size min(const Size& a, const Size& b);
  friend Size max(const Size& a, const Size& b);
  // Same normal form: certainly equal. False means "not known to be equal" unless both are known.
  friend bool operator==(const Size& a, const Size& b);

  const std::shared_ptr<const Polynomial>& form() const { return form_; }

 private:
  friend class Polynomial;
  explicit Size(std::shared_ptr<const Polynomial> form) : form_(std::move(form)) {}

  int64_t value_ = 0;
  std::shared_ptr<const Polynomial> form_;  // set for expressions only
};

Size operator+(const Size& a, const Size& b);
Size operator-(const Size& a, const Size& b);
Size operator*(const Size& a, const Size& b);
Size floor_div(const Size& a, const Size& b);
Size modulo(const Size& a, const Size& b);
Size min(const Size& a, const Size& b);
Size max(const Size& a, const Size& b);
bool operator==(const Size& a, const Size& b);

using Sizes = std::vector<Size>;

Sizes to_sizes(std::span<const int64_t> values);
Size product(std::span<const Size> sizes);
bool all_known(std::span<const Size> sizes);
std::string str(std::span<const Size> sizes);  // "[2, s0, 3*s0]"
// Size::parse inside a longer text.
Size read_size(Reader& reader);

}  // namespace smelt
