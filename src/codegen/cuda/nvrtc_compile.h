// Text to code, by NVRTC.
#pragma once

#include <string>

namespace smelt::cuda {

// How a text is compiled.
struct Variant {
  std::string architecture = "sm_90";
  bool contract = true;     // a*b + c may be computed with one rounding
  bool unaligned = false;   // buffers are aligned to their elements only
  bool long_index = false;  // indices have 64 bits
};

// Adds the device helpers. An InternalError has the compiler's words.
std::string compile_text(const std::string& text, const Variant& variant);

}  // namespace smelt::cuda
