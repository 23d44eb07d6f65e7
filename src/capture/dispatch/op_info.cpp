#include "capture/dispatch/op_info.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>

namespace smelt {
namespace {

struct SilentWriter {
  const char* name;
  std::vector<int> args;
  int when;  // the bool argument that makes it write
};

// Ops that update running statistics without an annotation in their schema, and other ops that are
// written down as changing copies of their arguments.
const SilentWriter kSilentWriters[] = {
    {"aten::cudnn_batch_norm", {3, 4}, 5},
    {"aten::miopen_batch_norm", {3, 4}, 5},
    {"aten::batch_norm_gather_stats", {3, 4}, -1},
    {"aten::batch_norm_gather_stats_with_counts", {3, 4}, -1},
    // These say so, but see record_bernoulli and record_division in kernels.cpp.
    {"aten::bernoulli_", {0}, -1},
    {"aten::div_", {0}, -1},
};

// Views that say nothing of it in their schema.
bool is_silent_view(const std::string& name) { return name == "aten::_unsafe_view"; }

Traits traits_of(const c10::OperatorHandle& handle, const std::string& name) {
  const c10::FunctionSchema& schema = handle.schema();
  Traits traits;
  traits.random = handle.hasTag(at::Tag::nondeterministic_seeded);
  traits.effect = schema.returns().empty();
  traits.view = is_silent_view(name);
  for (const c10::Argument& result : schema.returns())
    if (result.alias_info() && !result.alias_info()->isWrite()) traits.view = true;
  return traits;
}

// Indices give a shape of their own; a mask (a u8 one too) gives as many elements as it is true
// for.
bool depends_on_masks_only(const std::string& name) { return name == "aten::index.Tensor"; }

// oneDNN's RNN keeps a workspace for the backward, and rounds in another way, where gradients are
// on. A kernel of someone else may look as well.
bool may_read_grad_mode(const OpInfo& op) {
  return op.is_custom || op.name.str() == "aten::mkldnn_rnn_layer";
}

// PyTorch's ops that compute and do nothing else, and smelt's own, of which all is known.
bool is_of_known_library(const std::string& name) {
  static constexpr std::string_view kLibraries[] = {
      "aten::", "prims::", "smelt::", "mkldnn::", "onednn::", "mkl::", "quantized::", "torch_nn::"};
  return std::ranges::any_of(kLibraries,
                             [&](std::string_view library) { return name.starts_with(library); });
}

bool returns_literal(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(),
                     [](const c10::Argument& result) {
                       const auto kind = result.type()->kind();
                       return kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType;
                     });
}

OpInfo make_info(const c10::OperatorHandle& handle) {
  const c10::FunctionSchema& schema = handle.schema();
  std::string full = schema.name();
  if (!schema.overload_name().empty()) full += "." + schema.overload_name();
  OpInfo info(handle);
  info.name = OpName(full);
  info.traits = traits_of(handle, full);
  info.row = find_row(info.name);
  info.meta = find_meta_kernel(full);
  info.is_custom = full.rfind("aten::", 0) != 0;
  info.may_have_effects = !is_of_known_library(full);
  info.is_mutable = schema.is_mutable();
  info.is_factory = handle.hasKernelForDispatchKey(c10::DispatchKey::BackendSelect);
  info.is_composite = handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  info.data_dependent =
      handle.hasTag(at::Tag::dynamic_output_shape) || handle.hasTag(at::Tag::data_dependent_output);
  info.masks_only = depends_on_masks_only(full);
  info.reads_grad_mode = may_read_grad_mode(info);
  info.literal_results = returns_literal(schema);
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.name() == "dropout_p") info.dropout_arg = static_cast<int>(info.arg_types.size());
    info.arg_types.push_back(argument.real_type());
  }
  for (const SilentWriter& writer : kSilentWriters) {
    if (schema.name() != writer.name) continue;
    info.silent_writes = writer.args;
    info.silent_when = writer.when;
  }
  return info;
}

}  // namespace

const OpInfo& op_info(const c10::OperatorHandle& handle) {
  static std::shared_mutex mutex;
  // A library that is unloaded takes its ops with it, and another one may define them anew: the old
  // entries are kept, since references to them stay valid, but not found any more.
  static std::unordered_map<c10::OperatorName, std::unique_ptr<OpInfo>> table;
  static std::vector<std::unique_ptr<OpInfo>> outdated;
  const auto is_current = [&](const OpInfo& info) {
    return info.handle == handle && info.arg_types.size() == handle.schema().arguments().size();
  };
  {
    std::shared_lock lock(mutex);
    if (auto it = table.find(handle.operator_name()); it != table.end() && is_current(*it->second))
      return *it->second;
  }
  auto info = std::make_unique<OpInfo>(make_info(handle));
  std::unique_lock lock(mutex);
  std::unique_ptr<OpInfo>& entry = table[handle.operator_name()];
  if (entry && is_current(*entry)) return *entry;
  if (entry) outdated.push_back(std::move(entry));
  entry = std::move(info);
  return *entry;
}

}  // namespace smelt
