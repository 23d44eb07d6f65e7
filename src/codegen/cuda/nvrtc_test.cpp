#include "codegen/cuda/nvrtc_test.h"

#include <cstdlib>
#include <filesystem>

#include "codegen/cuda/driver.h"

namespace smelt::cuda {

Decision has_nvrtc_for_tests() {
  std::error_code error;
  const std::filesystem::path packages = std::filesystem::path(SMELT_TORCH_FOLDER).parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(packages / "nvidia", error))
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"})
      if (const auto path = entry.path() / "lib" / name; std::filesystem::exists(path, error))
        setenv("SMELT_NVRTC", path.c_str(), 0);
  return has_nvrtc();
}

}  // namespace smelt::cuda
