#include "codegen/cuda/nvrtc_compile.h"

#include <vector>

#include "codegen/cuda/driver.h"
#include "codegen/cuda/source.h"

namespace smelt::cuda {

std::string compile_text(const std::string& text, const Variant& variant) {
  const Nvrtc& api = nvrtc();
  const std::string architecture = "-arch=" + variant.architecture;
  std::vector<const char*> options = {
      architecture.c_str(), "--std=c++17", variant.contract ? "--fmad=true" : "--fmad=false",
      variant.long_index ? "-DSMELT_INDEX=long long" : "-DSMELT_INDEX=int"};
  if (variant.unaligned) options.push_back("-DSMELT_UNALIGNED");
  const std::string whole = device_text() + text;
  NvrtcProgram program = nullptr;
  int result = api.nvrtcCreateProgram(&program, whole.c_str(), "kernel.cu", 0, nullptr, nullptr);
  SMELT_CHECK(result == 0, api.nvrtcGetErrorString(result));
  struct Destroy {
    const Nvrtc& api;
    NvrtcProgram& program;
    ~Destroy() { api.nvrtcDestroyProgram(&program); }
  } destroy{api, program};
  result = api.nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  if (result != 0) {
    size_t size = 0;
    api.nvrtcGetProgramLogSize(program, &size);
    std::string log(size, ' ');
    api.nvrtcGetProgramLog(program, log.data());
    SMELT_CHECK(false, std::string(api.nvrtcGetErrorString(result)) + "\n" + log + "\n" + text);
  }
  size_t size = 0;
  result = api.nvrtcGetCUBINSize(program, &size);
  std::string code(size, '\0');
  if (result == 0) result = api.nvrtcGetCUBIN(program, code.data());
  SMELT_CHECK(result == 0, api.nvrtcGetErrorString(result));
  return code;
}

}  // namespace smelt::cuda
