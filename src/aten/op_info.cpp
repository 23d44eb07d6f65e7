#include "aten/op_info.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>

namespace smelt {
namespace {

Traits traits_of(const c10::OperatorHandle& handle, const OpFacts& facts) {
  const c10::FunctionSchema& schema = handle.schema();
  Traits traits;
  traits.random = handle.hasTag(at::Tag::nondeterministic_seeded);
  traits.effect = schema.returns().empty();
  traits.view = facts.is_view;
  for (const c10::Argument& result : schema.returns())
    if (result.alias_info() && !result.alias_info()->isWrite()) traits.view = true;
  return traits;
}

// What the recorder has an op do to copies: what the op does without a word, and what it is written
// down for on a copy.
void find_silent_writes(OpInfo& info) {
  const OpFacts& facts = info.facts;
  if (facts.recording == Recording::on_copy || facts.recording == Recording::division) {
    info.silent_writes = {0};
  } else if (!info.is_composite && facts.recording != Recording::declared) {
    for (const int8_t argument : facts.writes)
      if (argument >= 0) info.silent_writes.push_back(argument);
    info.silent_when = facts.writes_if;
  }
}

bool returns_literal(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(),
                     [](const c10::Argument& result) {
                       const auto kind = result.type()->kind();
                       return kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType;
                     });
}

bool takes_tensors(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), [](const c10::Argument& argument) {
    const c10::TypePtr& type = argument.type();
    return type->isSubtypeOf(*c10::TensorType::get()) ||
           type->isSubtypeOf(*c10::OptionalType::ofTensor()) ||
           type->isSubtypeOf(*c10::ListType::ofTensors());
  });
}

OpInfo make_info(const c10::OperatorHandle& handle) {
  const c10::FunctionSchema& schema = handle.schema();
  std::string full = schema.name();
  if (!schema.overload_name().empty()) full += "." + schema.overload_name();
  OpInfo info(handle);
  info.name = OpName(full);
  info.facts = facts_of(info.name);
  info.traits = traits_of(handle, info.facts);
  info.row = find_row(info.name);
  info.meta = find_meta_kernel(full);
  info.is_custom = library_of(info.name) != Library::aten;
  info.may_have_effects = library_of(info.name) == Library::foreign;
  info.is_mutable = schema.is_mutable();
  info.is_factory =
      handle.hasKernelForDispatchKey(c10::DispatchKey::BackendSelect) && !takes_tensors(schema);
  info.is_composite = handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  info.data_dependent =
      handle.hasTag(at::Tag::dynamic_output_shape) || handle.hasTag(at::Tag::data_dependent_output);
  // A kernel of someone else may look as well.
  info.reads_grad_mode = info.is_custom || info.facts.reads_grad_mode;
  info.literal_results = returns_literal(schema);
  for (const c10::Argument& argument : schema.arguments()) {
    const auto place = static_cast<int>(info.arg_types.size());
    if (argument.name() == "dropout_p") info.dropout_arg = place;
    if (argument.name() == "train" || argument.name() == "training") info.training_arg = place;
    info.arg_types.push_back(argument.real_type());
  }
  find_silent_writes(info);
  info.log = make_log_facts(info);
  return info;
}

}  // namespace

bool draws(const OpInfo& op, const std::vector<c10::IValue>& arguments) {
  return draws(
      op, [&](int i) { return arguments[i].isDouble() && arguments[i].toDouble() == 0.0; },
      [&](int i) { return arguments[i].isBool() && !arguments[i].toBool(); });
}

bool draws(const OpInfo& op, const std::vector<Arg>& args) {
  return draws(
      op, [&](int i) { return args[i].is<double>() && args[i].get<double>() == 0.0; },
      [&](int i) { return args[i].is<bool>() && !args[i].get<bool>(); });
}

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
