// What kernels compute of a generator's state (passes/draw_in_kernels.cpp).
#include "ops/rules/layout.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

// (seed, place, size, stride, vector, threads, device)
template <DType dtype>
Decision drawn(ShapeQuery& q) {
  const std::optional<Device> device = q.device(6);
  if (!device) return Decision::forbid("no device");
  TensorType type;
  type.dtype = dtype;
  type.device = *device;
  type.sizes = q.sizes(2);
  type.strides = q.sizes(3);
  if (!all_known(type.sizes) || type.strides.size() != type.sizes.size())
    return Decision::forbid("sizes that are not known");
  q.push(std::move(type));
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"smelt::random_bits", drawn<DType::i64>},
    {"smelt::random_normal", drawn<DType::f32>},
    {"smelt::random_uniform", drawn<DType::f32>},
};

}  // namespace

std::span<const OpRow> random_rows() { return kRows; }

}  // namespace smelt
