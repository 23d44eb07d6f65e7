// What smelt throws.
#pragma once

#include <stdexcept>

namespace smelt {

// A wrong use of smelt; the message says what, where and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The function can't be written down; it can run eagerly.
class RecordError : public Error {
 public:
  using Error::Error;
};

// A graph break under fullgraph=True; the message says why, where and what to do.
class BreakError : public Error {
 public:
  using Error::Error;
};

// A broken invariant of smelt itself: please report it.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace smelt
