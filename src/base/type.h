// What is known of a tensor before it exists: element type, sizes, strides, device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/size.h"

namespace smelt {

// A device as torch numbers it: `type` is c10::DeviceType's value, index -1 is "the current one".
struct Device {
  int8_t type = 0;  // 0 is the CPU, 1 is CUDA
  int8_t index = -1;

  bool is_cpu() const { return type == 0; }
  bool is_cuda() const { return type == 1; }
  std::string str() const;  // "cpu", "cuda:0"
  friend bool operator==(const Device&, const Device&) = default;
};
std::optional<Device> parse_device(std::string_view text);
// The same inside a longer text; takes nothing where no device comes next.
std::optional<Device> accept_device(Reader& reader);

struct TensorType {
  DType dtype = DType::f32;
  Device device;
  Sizes sizes;
  Sizes strides;      // in elements, as many as sizes
  Size offset = 0;    // of the first element in its storage
  bool conj = false;  // torch's lazy conjugate and negative bits
  bool neg = false;
  // A Python number that became an operand: takes part in promotion with its category only.
  bool wrapped_number = false;

  int rank() const { return static_cast<int>(sizes.size()); }
  Size numel() const { return product(sizes); }
  // "f32[2, s0]", with "{1, 2}" when not contiguous, "@3" for an offset, " cuda:0" when not the
  // CPU, and " conj", " neg", " number" for the flags that are set.
  std::string str() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// The inverse of TensorType::str.
TensorType read_type(Reader& reader);

// Row-major strides as torch gives them: a dimension of size 0 counts as 1.
Sizes contiguous_strides(std::span<const Size> sizes);

}  // namespace smelt
