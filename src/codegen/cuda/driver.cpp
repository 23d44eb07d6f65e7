#include "codegen/cuda/driver.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

namespace smelt::cuda {
namespace {

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

struct Opened {
  Driver driver{};
  Decision state = Decision::forbid("");
};

Opened open_driver() {
  Opened opened;
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) {
    opened.state = Decision::forbid("there is no NVIDIA driver (libcuda.so.1)");
    return opened;
  }
  Driver& driver = opened.driver;
  // Functions that exist in two forms have a version in their name.
  const bool all = find(library, "cuInit", driver.cuInit) &&
                   find(library, "cuGetErrorString", driver.cuGetErrorString) &&
                   find(library, "cuDeviceGet", driver.cuDeviceGet) &&
                   find(library, "cuDeviceGetCount", driver.cuDeviceGetCount) &&
                   find(library, "cuDeviceGetAttribute", driver.cuDeviceGetAttribute) &&
                   find(library, "cuDevicePrimaryCtxGetState", driver.cuDevicePrimaryCtxGetState) &&
                   find(library, "cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain) &&
                   find(library, "cuCtxGetCurrent", driver.cuCtxGetCurrent) &&
                   find(library, "cuCtxPushCurrent_v2", driver.cuCtxPushCurrent) &&
                   find(library, "cuCtxPopCurrent_v2", driver.cuCtxPopCurrent) &&
                   find(library, "cuCtxGetDevice", driver.cuCtxGetDevice) &&
                   find(library, "cuModuleLoadData", driver.cuModuleLoadData) &&
                   find(library, "cuModuleUnload", driver.cuModuleUnload) &&
                   find(library, "cuModuleGetFunction", driver.cuModuleGetFunction) &&
                   find(library, "cuStreamIsCapturing", driver.cuStreamIsCapturing) &&
                   find(library, "cuLaunchKernel", driver.cuLaunchKernel);
  opened.state =
      all ? Decision::allow() : Decision::forbid("the NVIDIA driver is too old for smelt");
  return opened;
}

const Opened& opened_driver() {
  static const Opened opened = open_driver();
  return opened;
}

// Where NVRTC may be: what the process has loaded comes first.
class NvrtcSearch {
 public:
  void* run() {
    dl_iterate_phdr(&NvrtcSearch::look, this);
    if (!loaded_.empty())
      if (void* library = dlopen(loaded_.c_str(), RTLD_NOW)) return library;
    // PyTorch's wheels have it beside torch: site-packages/nvidia/<something>/lib.
    for (const std::filesystem::path& packages : packages_)
      if (void* library = in_packages(packages / "nvidia")) return library;
    for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
      if (const char* home = std::getenv(variable))
        if (void* library = in_folder(std::filesystem::path(home) / "lib64")) return library;
    for (const char* name : kNames)
      if (void* library = dlopen(name, RTLD_NOW)) return library;
    return in_folder("/usr/local/cuda/lib64");
  }

 private:
  static constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

  static int look(dl_phdr_info* info, size_t, void* search) {
    auto& self = *static_cast<NvrtcSearch*>(search);
    const std::string_view path = info->dlpi_name ? info->dlpi_name : "";
    const auto slash = path.rfind('/');
    const std::string_view name = slash == path.npos ? path : path.substr(slash + 1);
    if (name.starts_with("libnvrtc.so") || name.starts_with("libnvrtc-")) {
      if (name.starts_with("libnvrtc.so")) self.loaded_ = path;
    } else if (name.starts_with("libtorch_cpu.so") || name.starts_with("libc10.so")) {
      // site-packages/torch/lib/libc10.so
      self.packages_.push_back(
          std::filesystem::path(path).parent_path().parent_path().parent_path());
    }
    return 0;
  }

  static void* in_folder(const std::filesystem::path& folder) {
    for (const char* name : kNames)
      if (void* library = dlopen((folder / name).c_str(), RTLD_NOW)) return library;
    return nullptr;
  }

  static void* in_packages(const std::filesystem::path& nvidia) {
    std::error_code error;
    std::vector<std::filesystem::path> folders;
    for (const auto& entry : std::filesystem::directory_iterator(nvidia, error))
      if (std::filesystem::exists(entry.path() / "lib", error))
        folders.push_back(entry.path() / "lib");
    for (const auto& folder : folders)
      if (void* library = in_folder(folder)) return library;
    return nullptr;
  }

  std::string loaded_;
  std::vector<std::filesystem::path> packages_;
};

// NVRTC opens a library of its own by name, which is found if it is open already. It lies beside
// it.
void open_builtins(void* nvrtc) {
  Dl_info info{};
  void* function = dlsym(nvrtc, "nvrtcVersion");
  if (!function || !dladdr(function, &info) || !info.dli_fname) return;
  std::error_code error;
  const auto folder = std::filesystem::path(info.dli_fname).parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().filename().string().starts_with("libnvrtc-builtins.so"))
      dlopen(entry.path().c_str(), RTLD_NOW);
}

struct OpenedNvrtc {
  Nvrtc nvrtc{};
  Decision state = Decision::forbid("");
};

OpenedNvrtc open_nvrtc() {
  OpenedNvrtc opened;
  // For programs without torch in them, and tests.
  const char* named = std::getenv("SMELT_NVRTC");
  void* library = named ? dlopen(named, RTLD_NOW) : NvrtcSearch().run();
  if (!library) {
    opened.state =
        Decision::forbid("NVRTC, NVIDIA's compiler, is not installed (libnvrtc.so.13 or .12)");
    return opened;
  }
  open_builtins(library);
  Nvrtc& nvrtc = opened.nvrtc;
  const bool all = find(library, "nvrtcVersion", nvrtc.nvrtcVersion) &&
                   find(library, "nvrtcGetErrorString", nvrtc.nvrtcGetErrorString) &&
                   find(library, "nvrtcCreateProgram", nvrtc.nvrtcCreateProgram) &&
                   find(library, "nvrtcDestroyProgram", nvrtc.nvrtcDestroyProgram) &&
                   find(library, "nvrtcCompileProgram", nvrtc.nvrtcCompileProgram) &&
                   find(library, "nvrtcGetProgramLogSize", nvrtc.nvrtcGetProgramLogSize) &&
                   find(library, "nvrtcGetProgramLog", nvrtc.nvrtcGetProgramLog) &&
                   find(library, "nvrtcGetCUBINSize", nvrtc.nvrtcGetCUBINSize) &&
                   find(library, "nvrtcGetCUBIN", nvrtc.nvrtcGetCUBIN);
  opened.state = all ? Decision::allow() : Decision::forbid("NVRTC is too old for smelt");
  return opened;
}

const OpenedNvrtc& opened_nvrtc() {
  static const OpenedNvrtc opened = open_nvrtc();
  return opened;
}

}  // namespace

Decision has_driver() { return opened_driver().state; }
Decision has_nvrtc() { return opened_nvrtc().state; }

const Driver& driver() {
  SMELT_CHECK(has_driver(), has_driver().reason());
  return opened_driver().driver;
}

const Nvrtc& nvrtc() {
  SMELT_CHECK(has_nvrtc(), has_nvrtc().reason());
  return opened_nvrtc().nvrtc;
}

void check_driver(CuResult result, const char* what) {
  if (result == 0) return;
  const char* text = nullptr;
  driver().cuGetErrorString(result, &text);
  throw Error(std::string("CUDA error in ") + what + ": " +
              (text ? text : std::to_string(result).c_str()));
}

}  // namespace smelt::cuda
