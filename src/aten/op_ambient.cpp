#include "aten/op_ambient.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

namespace smelt {
namespace {

constexpr std::array<c10::DeviceType, 2> kDevices = {c10::kCPU, c10::kCUDA};
constexpr std::array<const char*, 2> kDeviceNames = {"cpu", "cuda"};
constexpr std::array<const char*, 5> kAttentionNames = {"flash", "memory-efficient", "plain",
                                                        "cuDNN's", "a back end's"};

void set_attention(const std::array<bool, 5>& enabled) {
  at::Context& context = at::globalContext();
  context.setSDPUseFlash(enabled[0]);
  context.setSDPUseMemEfficient(enabled[1]);
  context.setSDPUseMath(enabled[2]);
  context.setSDPUseCuDNN(enabled[3]);
  context.setSDPUseOverrideable(enabled[4]);
}

}  // namespace

OpAmbient OpAmbient::current() {
  OpAmbient ambient;
  ambient.grad = at::GradMode::is_enabled();
  ambient.inference = c10::InferenceMode::is_enabled();
  for (size_t i = 0; i < kDevices.size(); ++i) {
    ambient.autocast[i] = at::autocast::is_autocast_enabled(kDevices[i]);
    ambient.autocast_dtype[i] = at::autocast::get_autocast_dtype(kDevices[i]);
  }
  ambient.autocast_cache = at::autocast::is_autocast_cache_enabled();
  const at::Context& context = at::globalContext();
  ambient.attention = {context.userEnabledFlashSDP(), context.userEnabledMemEfficientSDP(),
                       context.userEnabledMathSDP(), context.userEnabledCuDNNSDP(),
                       context.userEnabledOverrideableSDP()};
  return ambient;
}

std::string OpAmbient::str() const {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (inference)
    add("inference_mode");
  else if (!grad)
    add("no_grad");
  for (size_t i = 0; i < kDevices.size(); ++i)
    if (autocast[i])
      add(std::string("autocast(") + kDeviceNames[i] + ", " + c10::toString(autocast_dtype[i]) +
          ")");
  for (size_t i = 0; i < attention.size(); ++i)
    if (!attention[i]) add(std::string("without ") + kAttentionNames[i] + " attention");
  return text;
}

OpAmbientScope::OpAmbientScope(const OpAmbient& assumed)
    : outside_(OpAmbient::current()), now_(outside_) {
  if (outside_.any_autocast()) now_.cache_filling = assumed.cache_filling;
}

OpAmbientScope::~OpAmbientScope() {
  if (!changed_) return;
  if (now_.any_autocast() && !outside_.any_autocast()) at::autocast::clear_cache();
  apply(outside_);
}

void OpAmbientScope::enter(const OpAmbient& next) {
  if (next == now_) return;
  if (now_.any_autocast() && (!next.any_autocast() || next.cache_filling != now_.cache_filling))
    at::autocast::clear_cache();
  changed_ = true;
  apply(next);
}

// The end of an inference mode puts the state back that was at its start, so everything is set.
void OpAmbientScope::apply(const OpAmbient& next) {
  if (next.inference != now_.inference) {
    inference_.reset();
    if (next.inference != outside_.inference) inference_.emplace(next.inference);
  }
  at::GradMode::set_enabled(next.grad);
  for (size_t i = 0; i < kDevices.size(); ++i) {
    at::autocast::set_autocast_enabled(kDevices[i], next.autocast[i]);
    at::autocast::set_autocast_dtype(kDevices[i], next.autocast_dtype[i]);
  }
  at::autocast::set_autocast_cache_enabled(next.autocast_cache);
  if (next.attention != now_.attention) set_attention(next.attention);
  now_ = next;
}

}  // namespace smelt
