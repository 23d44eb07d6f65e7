#include "base/error.h"

namespace smelt {

void fail_check(const char* file, int line, const char* condition, const std::string& message) {
  throw InternalError(message + " (" + file + ":" + std::to_string(line) + ": " + condition +
                      " does not hold; this is a bug in smelt)");
}

}  // namespace smelt
