#include "base/type.h"

#include <array>

#include "base/error.h"
#include "base/reader.h"

namespace smelt {
namespace {

// torch's names, in the order of c10::DeviceType.
constexpr auto kDeviceNames = std::to_array<std::string_view>(
    {"cpu",  "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip",
     "fpga", "maia", "xla",    "vulkan", "metal",  "xpu",   "mps",
     "meta", "hpu",  "ve",     "lazy",   "ipu",    "mtia",  "privateuseone"});

Sizes read_sizes(Reader& reader, std::string_view open, std::string_view close) {
  Sizes sizes;
  reader.expect(open);
  if (reader.accept(close)) return sizes;
  do {
    sizes.push_back(read_size(reader));
  } while (reader.accept(","));
  reader.expect(close);
  return sizes;
}

}  // namespace

std::string Device::str() const {
  SMELT_CHECK(type >= 0 && static_cast<size_t>(type) < kDeviceNames.size(),
              "unknown device type " + std::to_string(type));
  std::string text(kDeviceNames[type]);
  if (index >= 0) text += ":" + std::to_string(index);
  return text;
}

std::optional<Device> accept_device(Reader& reader) {
  std::string_view name = reader.peek_word();
  for (size_t i = 0; i < kDeviceNames.size(); ++i) {
    if (kDeviceNames[i] != name) continue;
    reader.skip(name.size());
    Device device{static_cast<int8_t>(i), -1};
    if (reader.accept(":")) {
      size_t start = reader.place();
      uint64_t index = reader.natural("the index of a device");
      if (index > 127) reader.fail_at(start, "the index of a device is at most 127");
      device.index = static_cast<int8_t>(index);
    }
    return device;
  }
  return std::nullopt;
}

std::optional<Device> parse_device(std::string_view text) {
  Reader reader(text);
  try {
    std::optional<Device> device = accept_device(reader);
    if (reader.at_end()) return device;
  } catch (const Error&) {
  }
  return std::nullopt;
}

std::string TensorType::str() const {
  std::string text(name_of(dtype));
  text += smelt::str(sizes);
  if (strides != contiguous_strides(sizes)) {
    std::string braced = smelt::str(strides);
    braced.front() = '{';
    braced.back() = '}';
    text += braced;
  }
  if (!offset.is(0)) text += "@" + offset.str();
  if (device != Device{}) text += " " + device.str();
  if (conj) text += " conj";
  if (neg) text += " neg";
  if (wrapped_number) text += " number";
  return text;
}

TensorType read_type(Reader& reader) {
  size_t start = reader.place();
  std::string_view name = reader.word("a type, as f32[2, 3]");
  std::optional<DType> dtype = parse_dtype(name);
  if (!dtype)
    reader.fail_at(start, "expected an element type, as f32, found '" + std::string(name) + "'");
  TensorType type;
  type.dtype = *dtype;
  type.sizes = read_sizes(reader, "[", "]");
  type.strides =
      reader.next_is("{") ? read_sizes(reader, "{", "}") : contiguous_strides(type.sizes);
  if (reader.accept("@")) type.offset = read_size(reader);
  if (auto device = accept_device(reader)) type.device = *device;
  type.conj = reader.accept_word("conj");
  type.neg = reader.accept_word("neg");
  type.wrapped_number = reader.accept_word("number");
  return type;
}

Sizes contiguous_strides(std::span<const Size> sizes) {
  Sizes strides(sizes.size());
  Size stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride = stride * max(sizes[i], 1);
  }
  return strides;
}

}  // namespace smelt
