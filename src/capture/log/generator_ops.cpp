// The state of a random generator as ops, so that a log has them in their place among those that
// draw: smelt.compile asks for these where code calls Generator.get_state() and its kind.
#include <ATen/core/Generator.h>
#include <ATen/core/enum_tag.h>
#include <c10/core/Scalar.h>
#include <torch/library.h>

#include <cstdint>
#include <mutex>
#include <vector>

namespace smelt {
namespace {

// (Schemas know generators that may be none, and C++ has one type for both.)
at::Tensor rng_state(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_rng_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

void seed(at::Generator generator, const at::Scalar& seed) {
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(static_cast<uint64_t>(seed.toLong()));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(smelt, m) {
  // They stand where they stand among those that draw.
  const std::vector<at::Tag> tags{at::Tag::nondeterministic_seeded};
  m.def("rng_state(Generator? generator) -> Tensor", tags);
  m.def("set_rng_state(Generator? generator, Tensor state) -> ()", tags);
  m.def("seed(Generator? generator, Scalar seed) -> ()", tags);
  for (const auto key :
       {c10::DispatchKey::CompositeExplicitAutograd, c10::DispatchKey::BackendSelect}) {
    m.impl("rng_state", torch::dispatch(key, rng_state));  // they take no tensor, as factories do
    m.impl("seed", torch::dispatch(key, seed));
  }
  m.impl("set_rng_state",
         torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, set_rng_state));
}

}  // namespace smelt
