// A back end makes code of kernels for one kind of device and starts it. Each is a folder under
// codegen/ with one object of this interface; nothing outside of the folder asks for it by name.
//
// A kernel passes through it in three steps: `compile` makes an image of loops, which is data;
// `load` makes an image ready to run in this process; `launch` starts what was loaded.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/type.h"
#include "loops/kernel.h"
#include "runtime/host.h"
#include "runtime/kernel_image.h"

namespace smelt {

// How all back ends compile kernels.
struct KernelOptions {
  // a*b + c may be computed with one rounding.
  bool contract = true;
  // By symbol: what it is likely to be. Kernels are for all values; these are what costs are
  // estimated with.
  std::vector<int64_t> likely_symbols = {};
  // The kernels are not needed yet: their code may be made when they are loaded.
  bool later = false;

  friend bool operator==(const KernelOptions&, const KernelOptions&) = default;
};

// What guides the schedule: how kernels should be cut for a device. Counts are of elements.
struct FusionLimits {
  int64_t longest_row = 0;        // a row that several stages pass over should stay in fast memory
  int64_t few_rows = 0;           // with fewer outer points the device has nothing to share
  int64_t few_columns = 0;        // likewise where outer points lie side by side
  int64_t small_work = 0;         // work that is done before others could have begun with it
  int64_t update_parts = 1;       // into so many parts the columns of an update are cut
  int64_t update_part_width = 1;  // at least so wide
};
// Of back ends whose kernels run on the host's processor: rows should stay in its second-level
// cache, and parts of an update fill a few cache lines.
inline constexpr FusionLimits kHostLimits{.longest_row = 128 * 1024,
                                          .few_rows = 8,
                                          .few_columns = 8,
                                          .small_work = 32 * 1024,
                                          .update_parts = 8,
                                          .update_part_width = 64};

// Code in this process, made of an image. It can be launched for as long as someone holds it.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
};

// One kernel with its buffers: a pointer for each, nullptr for scratch. And with the values of its
// parameters, eight bytes each, as loops::Kernel has them.
struct Launch {
  const LoadedKernel* kernel = nullptr;
  void* const* buffers = nullptr;
  const uint64_t* params = nullptr;
  // The values of its image's sizes, units and unit_cost, one behind the other, where the caller
  // has them; else the back end computes what it needs of the symbols.
  const int64_t* sizes = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  // The kind of processor that code is made for here: "avx512"; "none" where there is none.
  virtual std::string target() const = 0;
  // "built without LLVM", "there is no GPU".
  virtual Decision is_available() const = 0;
  // Is it one that programs should run on, rather than one to compare with?
  virtual bool is_native() const = 0;
  // Do its kernels read and write memory of this device?
  virtual bool serves(const Device& device) const = 0;
  // Do its kernels run on the host's own threads, and are they done when launch returns? One that
  // does not queues its work on the host's stream for the device, and launch is always true: a
  // kernel that finds an index out of range ends as PyTorch's own kernels of that device do.
  virtual bool runs_on_host() const { return true; }

  // Of a device of which PyTorch draws random numbers as kernels can compute them: how many blocks
  // of 256 threads it draws with at most. 0: kernels don't draw.
  virtual int64_t drawing_blocks(const Device& /*device*/) const { return 0; }

  virtual const FusionLimits& limits() const = 0;
  // "complex numbers are not supported".
  virtual Decision can_compile(const loops::Kernel& kernel) const = 0;
  // All must be compilable. Equal kernels are compiled once. Thread-safe, as everything that
  // follows.
  virtual std::vector<KernelImage> compile(std::span<const loops::Kernel* const> kernels,
                                           const KernelOptions& options) const = 0;
  // An Error says why an image of another process can't be used here. Makes the code that was left
  // for later.
  virtual std::vector<std::shared_ptr<const LoadedKernel>> load(
      std::span<const KernelImage> images) const = 0;
  // Runs kernels of one device that do not depend on each other; that device is the current one.
  // `symbols`: values of the program's symbols. False: an index was out of range, or an integer was
  // divided by 0; what was written means nothing then.
  virtual bool launch(std::span<const Launch> launches, std::span<const int64_t> symbols,
                      Host& host) const = 0;
};

// An image without code: its name, its buffers, parameters and sizes, and whether it is ordered. Of
// an updated buffer the caller knows what it begins as, and of all of them on which device they
// are.
KernelImage describe(const loops::Kernel& kernel, const Backend& backend);

// All back ends that are linked in, available or not.
std::span<const Backend* const> all_backends();
// By name; nullptr: there is none.
const Backend* find_backend(std::string_view name);
// The available ones that programs should run on.
std::vector<const Backend*> native_backends();
// The available ones to compare those with.
std::vector<const Backend*> reference_backends();
// What users call a back end: "native" for those, "eager" for none at all, or a name. Nothing:
// there is no such back end.
std::optional<std::vector<const Backend*>> find_backends(std::string_view name);
// Of several, the one for a device; nullptr: none of them.
const Backend* backend_for(std::span<const Backend* const> backends, const Device& device);

// Backend::load where each image is a kernel of this class by itself.
template <class Kernel>
std::vector<std::shared_ptr<const LoadedKernel>> load_each(std::span<const KernelImage> images) {
  std::vector<std::shared_ptr<const LoadedKernel>> loaded;
  loaded.reserve(images.size());
  for (const KernelImage& image : images) loaded.push_back(std::make_shared<const Kernel>(image));
  return loaded;
}

// Makes a back end known; a constant of its folder.
class BackendRegistration {
 public:
  explicit BackendRegistration(const Backend& backend);
};

}  // namespace smelt
