#include "capture/dispatch/log_facts.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "capture/dispatch/each_tensor.h"

namespace smelt {
namespace {

bool is_any_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool starts(const std::string& name, const char* prefix) { return name.rfind(prefix, 0) == 0; }

// The result's shape depends on contents, and PyTorch has no tag to say so.
bool is_untagged(const std::string& name) {
  return is_any_of(name, {"aten::where", "aten::nonzero_numpy", "aten::_pack_padded_sequence",
                          "aten::repeat_interleave.self_Tensor",
                          "aten::tensor_split.tensor_indices_or_sections"});
}

// An integer argument that fixes the shape.
int size_argument(const std::string& name) {
  if (name == "aten::one_hot" || name == "aten::repeat_interleave.Tensor") return 1;
  if (name == "aten::repeat_interleave.self_Tensor") return 3;
  return -1;
}

// Host values that types decide, alone or beside tensors.
bool has_known_literals(const std::string& name) {
  static constexpr const char* kPrefixes[] = {"aten::sym_",
                                              "aten::size",
                                              "aten::stride",
                                              "aten::numel",
                                              "aten::dim",
                                              "aten::storage_offset",
                                              "aten::is_signed",
                                              "aten::is_same_size",
                                              "aten::is_conj",
                                              "aten::is_neg",
                                              "aten::is_inference",
                                              "aten::is_floating_point",
                                              "aten::is_complex",
                                              "aten::is_contiguous",
                                              "aten::is_coalesced",
                                              "aten::result_type",
                                              "aten::can_cast",
                                              "aten::promote_types",
                                              "aten::get_device",
                                              "aten::sparse_dim",
                                              "aten::dense_dim",
                                              "aten::cudnn_is_acceptable",
                                              "aten::_use_cudnn_rnn",
                                              "aten::_scaled_dot_product",
                                              "aten::_efficient_attention",
                                              "aten::_batch_norm_impl"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](const char* prefix) { return starts(name, prefix); });
}

bool has_mask(const std::vector<c10::IValue>& stack, size_t first) {
  bool found = false;
  for (size_t i = first; i < stack.size(); ++i)
    if (!stack[i].isTensor())
      each_tensor(stack[i], [&](const at::Tensor& tensor) {
        found |= tensor.scalar_type() == c10::kBool || tensor.scalar_type() == c10::kByte;
      });
  return found;
}

LogFacts make_facts(const OpInfo& op) {
  const std::string& full = op.name.str();
  const std::string& name = op.handle.schema().name();
  LogFacts facts;
  facts.data_dependent =
      op.data_dependent || is_untagged(full) || (op.literal_results && !has_known_literals(full));
  const auto& returns = op.handle.schema().returns();
  const bool only_tensors =
      std::all_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
        return result.type()->kind() == c10::TypeKind::TensorType;
      });
  facts.dynamic_shapes = !op.literal_results && !op.is_mutable && !op.is_custom &&
                         !returns.empty() &&
                         (only_tensors || is_any_of(full, {"aten::where", "aten::nonzero_numpy"}));
  facts.masks_only = op.masks_only;
  facts.unless_given = size_argument(full);
  facts.gives_number = full == "aten::item";
  facts.lifts = is_any_of(full, {"aten::lift_fresh", "aten::lift"});
  facts.sets_storage = name == "aten::set_";
  facts.resizes = starts(name, "aten::resize");
  facts.is_detach = full == "aten::detach_";
  facts.ignores_autograd = op.is_factory || facts.lifts || starts(name, "aten::new_") ||
                           (name.size() > 5 && name.compare(name.size() - 5, 5, "_like") == 0);
  facts.takes_scalars = !op.literal_results && !op.is_custom && !facts.data_dependent &&
                        !is_any_of(name, {"aten::arange", "aten::range"});
  facts.takes_any_shape =
      !op.literal_results && !op.is_custom && only_tensors && !facts.sets_storage && !facts.resizes;
  facts.reduces_all = is_any_of(
      full, {"aten::sum", "aten::mean", "aten::max", "aten::min", "aten::any", "aten::all",
             "aten::prod", "aten::std", "aten::var", "aten::norm.Scalar", "aten::dot"});
  if (const auto reduction = op.handle.schema().argumentIndexWithName("reduction"))
    facts.reduction = *reduction;
  // Running statistics.
  if (is_any_of(full, {"aten::batch_norm", "aten::native_batch_norm", "aten::instance_norm",
                       "aten::_batch_norm_impl_index"})) {
    facts.silent_writes = {3, 4};
    facts.silent_when = 5;
  } else if (!op.is_mutable) {
    facts.silent_writes = op.silent_writes;
    facts.silent_when = op.silent_when;
  }
  return facts;
}

}  // namespace

bool LogFacts::gives_one(const std::vector<c10::IValue>& arguments) const {
  return reduces_all ||
         (reduction >= 0 && arguments[reduction].isInt() && arguments[reduction].toInt() != 0);
}

bool LogFacts::depends_on_contents(const std::vector<c10::IValue>& stack, size_t first) const {
  if (!data_dependent) return false;
  if (masks_only) return has_mask(stack, first);
  if (unless_given < 0) return true;
  const c10::IValue& size = stack[first + static_cast<size_t>(unless_given)];
  return !size.isInt() || size.toInt() < 0;
}

const LogFacts& log_facts(const OpInfo& op) {
  static std::shared_mutex mutex;
  static std::unordered_map<const OpInfo*, LogFacts> table;
  {
    std::shared_lock lock(mutex);
    if (auto it = table.find(&op); it != table.end()) return it->second;
  }
  LogFacts facts = make_facts(op);
  std::unique_lock lock(mutex);
  return table.try_emplace(&op, std::move(facts)).first->second;
}

}  // namespace smelt
