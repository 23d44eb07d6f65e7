#include "bridge/preparation.h"

namespace smelt {

Preparation::Seen::Seen(const at::Tensor& tensor)
    : tensor(tensor.getIntrusivePtr()),
      storage(tensor.storage().getWeakStorageImpl()),
      address(tensor.unsafeGetTensorImpl()),
      storage_address(tensor.storage().unsafeGetStorageImpl()),
      data(tensor.const_data_ptr()),
      version(tensor.unsafeGetTensorImpl()->version_counter().current_version()) {}

bool Preparation::Seen::is(const at::Tensor& now) const {
  const c10::TensorImpl* impl = now.unsafeGetTensorImpl();
  return impl == address && impl->unsafe_storage().unsafeGetStorageImpl() == storage_address &&
         now.const_data_ptr() == data && impl->version_counter().current_version() == version;
}

Preparation::Preparation(Program program, std::vector<c10::IValue> opaque)
    : program_(std::move(program), std::move(opaque)) {}

bool Preparation::holds(const Done& done, std::span<const at::Tensor> inputs) const {
  const std::vector<ProgramInput>& needed = program_.program().inputs;
  for (size_t i = 0; i < needed.size(); ++i)
    if (!done.seen[i].is(inputs[needed[i].index])) return false;
  return true;
}

std::shared_ptr<const Preparation::Done> Preparation::prepare(
    std::span<const at::Tensor> inputs) const {
  auto done = std::make_shared<Done>();
  std::vector<at::Tensor> needed;
  for (const ProgramInput& input : program_.program().inputs) {
    needed.push_back(inputs[input.index]);
    done->seen.emplace_back(needed.back());
  }
  try {
    done->results = program_.run(std::move(needed), {});
  } catch (const std::exception& error) {
    throw KernelFailed("weights could not be prepared: " + std::string(error.what()));
  }
  return done;
}

std::shared_ptr<const std::vector<at::Tensor>> Preparation::results(
    std::span<const at::Tensor> inputs) const {
  std::shared_ptr<const Done> done;
  {
    const std::lock_guard lock(mutex_);
    done = done_;
  }
  if (!done || !holds(*done, inputs)) {
    done = prepare(inputs);
    const std::lock_guard lock(mutex_);
    done_ = done;
  }
  return {done, &done->results};
}

}  // namespace smelt
