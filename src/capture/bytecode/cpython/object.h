// Python objects held from C++.
#pragma once

#include <Python.h>

#include <string>
#include <utility>

namespace smelt::bytecode {

// A strong reference; may be empty.
class Object {
 public:
  Object() = default;
  static Object steal(PyObject* object) { return Object(object); }
  static Object share(PyObject* object) { return Object(Py_XNewRef(object)); }
  Object(const Object& other) : object_(Py_XNewRef(other.object_)) {}
  Object(Object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Object& operator=(Object other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Object() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  explicit Object(PyObject* object) : object_(object) {}
  PyObject* object_ = nullptr;
};

// The text of a str; "?" for anything else. Never leaves an error set.
std::string text_of(PyObject* str);
// repr(object), shortened; for messages. Runs no Python code of the user's: other types are named
// by their type alone.
std::string show(PyObject* object);

// An error that is set, kept aside while other code runs.
class SavedError {
 public:
#if PY_VERSION_HEX >= 0x030C0000
  SavedError() : value_(PyErr_GetRaisedException()) {}
  ~SavedError() { PyErr_SetRaisedException(value_); }
#else
  SavedError() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~SavedError() { PyErr_Restore(type_, value_, traceback_); }
#endif
  SavedError(const SavedError&) = delete;
  SavedError& operator=(const SavedError&) = delete;

 private:
#if PY_VERSION_HEX >= 0x030C0000
  PyObject* value_;
#else
  PyObject *type_, *value_, *traceback_;
#endif
};

// The exception that is set, taken away, with its traceback in it; empty if none is.
Object take_error();
// Sets it again as it is, without chaining it to an exception that is being handled.
void restore_error(Object exception);

}  // namespace smelt::bytecode
