#include "backend/backend.h"

#include <algorithm>

namespace smelt {
namespace {

// Filled while the library is loaded, by one thread, and only read afterwards.
std::vector<const Backend*>& registry() {
  static std::vector<const Backend*> backends;
  return backends;
}

std::vector<const Backend*> available(bool native) {
  std::vector<const Backend*> backends;
  for (const Backend* backend : registry())
    if (backend->is_native() == native && backend->is_available()) backends.push_back(backend);
  return backends;
}

}  // namespace

BackendRegistration::BackendRegistration(const Backend& backend) { registry().push_back(&backend); }

KernelImage describe(const loops::Kernel& kernel, const Backend& backend) {
  using Kind = loops::Buffer::Kind;
  KernelImage image;
  image.name = kernel.name;
  image.backend = backend.name();
  image.target = backend.target();
  image.sizes = loops::size_params(kernel);
  image.params = kernel.params;
  image.ordered = kernel.ordered;
  for (const loops::Buffer& buffer : kernel.buffers)
    image.buffers.push_back(buffer.kind == Kind::input     ? KernelImage::Buffer::input
                            : buffer.kind == Kind::output  ? KernelImage::Buffer::output
                            : buffer.kind == Kind::updated ? KernelImage::Buffer::updated
                                                           : KernelImage::Buffer::scratch);
  return image;
}

std::span<const Backend* const> all_backends() { return registry(); }

const Backend* find_backend(std::string_view name) {
  const auto found = std::ranges::find_if(
      registry(), [&](const Backend* backend) { return backend->name() == name; });
  return found == registry().end() ? nullptr : *found;
}

std::vector<const Backend*> native_backends() { return available(true); }
std::vector<const Backend*> reference_backends() { return available(false); }

std::optional<std::vector<const Backend*>> find_backends(std::string_view name) {
  if (name == "native") return native_backends();
  if (name == "eager") return std::vector<const Backend*>();
  const Backend* backend = find_backend(name);
  if (!backend) return std::nullopt;
  return std::vector<const Backend*>{backend};
}

const Backend* backend_for(std::span<const Backend* const> backends, const Device& device) {
  const auto found = std::ranges::find_if(
      backends, [&](const Backend* backend) { return backend->serves(device); });
  return found == backends.end() ? nullptr : *found;
}

}  // namespace smelt
