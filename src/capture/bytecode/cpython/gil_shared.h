// Ownership by several, counted under the GIL. What calls of a compiled function share (its
// segments) is found in tables that any Python code may replace: by smelt.reset(), from a
// destructor, on another thread. So whoever runs code while he uses an entry owns it meanwhile.
// Python objects are dropped with the GIL held anyway, so that the count need not be atomic, and a
// cached call does not notice it.
#pragma once

#include <cstdint>
#include <utility>

namespace smelt::bytecode {

// The base of what GilShared owns.
class GilCounted {
 public:
  GilCounted() = default;
  GilCounted(const GilCounted&) = delete;
  GilCounted& operator=(const GilCounted&) = delete;

 private:
  template <class T>
  friend class GilShared;
  uint64_t owners_ = 0;
};

// One of the owners of a T; may be empty.
template <class T>
class GilShared {
 public:
  GilShared() = default;
  explicit GilShared(T* object) : object_(object) { acquire(); }
  GilShared(const GilShared& other) : object_(other.object_) { acquire(); }
  GilShared(GilShared&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  GilShared& operator=(GilShared other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~GilShared() {
    if (object_ != nullptr && --object_->owners_ == 0) delete object_;
  }

  T* get() const { return object_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  bool operator==(const GilShared&) const = default;
  uint64_t owners() const { return object_ == nullptr ? 0 : object_->owners_; }

 private:
  void acquire() {
    if (object_ != nullptr) ++object_->owners_;
  }
  T* object_ = nullptr;
};

template <class T, class... Arguments>
GilShared<T> make_gil_shared(Arguments&&... arguments) {
  return GilShared<T>(new T(std::forward<Arguments>(arguments)...));
}

}  // namespace smelt::bytecode
