#include "ops/shapes/options.h"

namespace smelt {

Decision read_options(const ShapeQuery& q, size_t first, Options& options) {
  if (std::optional<DType> dtype = q.dtype(first)) options.dtype = *dtype;
  if (!q.is_none(first + 1) && q.arg(first + 1).get<Layout>().value != 0) {
    return Decision::forbid("the layout is not strided");
  }
  if (std::optional<Device> device = q.device(first + 2)) {
    if (device->is_cpu()) {
      options.device = Device{};
    } else if (device->index >= 0) {
      options.device = *device;
    } else {
      return Decision::forbid("the index of the device is left open");
    }
  }
  return Decision::allow();
}

}  // namespace smelt
