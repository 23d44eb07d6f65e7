// Errors, refusals and checks. Error: the user can act on it. InternalError: smelt's own bug.
// Decision: "cannot lower / record / fold this", with its sentence; never an exception.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace smelt {

// A wrong use of smelt; the message says what, where and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A broken invariant of smelt itself.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Yes, or no with the reason.
class [[nodiscard]] Decision {
 public:
  static Decision allow() { return Decision(); }
  static Decision forbid(std::string reason) { return Decision(std::move(reason)); }

  explicit operator bool() const { return allowed_; }
  const std::string& reason() const { return reason_; }

 private:
  Decision() = default;
  explicit Decision(std::string reason) : allowed_(false), reason_(std::move(reason)) {}

  bool allowed_ = true;
  std::string reason_;
};

[[noreturn]] void fail_check(const char* file, int line, const char* condition, const std::string& message);

}  // namespace smelt

// States an invariant; a failure is an InternalError that names the place.
#define SMELT_CHECK(condition, message)                                   \
  do {                                                                    \
    if (!(condition)) [[unlikely]]                                        \
      ::smelt::fail_check(__FILE__, __LINE__, #condition, (message));     \
  } while (false)
