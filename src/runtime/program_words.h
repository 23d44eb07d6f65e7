// Words of a program's text that both its printer and its parser know.
#pragma once

#include <array>
#include <string_view>

#include "runtime/kernel_image.h"

namespace smelt {

// In the order of KernelImage::Buffer.
inline constexpr std::array<std::string_view, 5> kBufferWords = {"input", "output", "updated",
                                                                 "zeroed", "scratch"};
inline std::string_view word_of(KernelImage::Buffer buffer) {
  return kBufferWords[static_cast<size_t>(buffer)];
}

}  // namespace smelt
