// Refusals and checks; the exceptions themselves are public (smelt/errors.h). Error: the user can
// act on it. InternalError: smelt's own bug. Decision: "cannot lower / record / fold this", with
// its sentence; never an exception.
#pragma once

#include <string>
#include <utility>

#include "smelt/errors.h"

namespace smelt {

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

[[noreturn]] void fail_check(const char* file, int line, const char* condition,
                             const std::string& message);

}  // namespace smelt

// States an invariant; a failure is an InternalError that names the place.
#define SMELT_CHECK(condition, message)                               \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::smelt::fail_check(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
