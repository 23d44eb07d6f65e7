#include "ops/rows.h"

#include <unordered_map>

#include "base/error.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

std::vector<OpRow> collect() {
  std::vector<OpRow> rows;
  for (auto family :
       {pointwise_rows,      activation_rows, copy_rows,  loss_rows,          class_loss_rows,
        foreach_rows,        reduce_rows,     scan_rows,  matmul_rows,        attention_rows,
        view_rows,           split_rows,      norm_rows,  batch_norm_rows,    conv_rows,
        pool_rows,           upsample_rows,   index_rows, embedding_bag_rows, arrange_rows,
        factory_rows,        linalg_rows,     fft_rows,   resample_rows,      margin_loss_rows,
        cuda_attention_rows, recurrent_rows,  random_rows}) {
    const std::span<const OpRow> part = family();
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

std::unordered_map<OpName, const OpRow*> index_by_name() {
  std::unordered_map<OpName, const OpRow*> index;
  for (const OpRow& row : all_rows()) {
    const bool first = index.emplace(OpName(row.name), &row).second;
    SMELT_CHECK(first, "two rows for " + std::string(row.name));
  }
  return index;
}

}  // namespace

const OpRow* find_row(OpName op) {
  static const std::unordered_map<OpName, const OpRow*> index = index_by_name();
  const auto found = index.find(op);
  return found == index.end() ? nullptr : found->second;
}

std::span<const OpRow> all_rows() {
  static const std::vector<OpRow> rows = collect();
  return rows;
}

}  // namespace smelt
