// The row tables, one per family of ops. rows.cpp puts them together.
#pragma once

#include <span>

#include "ops/rules/op_row.h"

namespace smelt {

std::span<const OpRow> pointwise_rows();
std::span<const OpRow> activation_rows();
std::span<const OpRow> copy_rows();
std::span<const OpRow> loss_rows();
std::span<const OpRow> class_loss_rows();
std::span<const OpRow> foreach_rows();
std::span<const OpRow> reduce_rows();
std::span<const OpRow> scan_rows();
std::span<const OpRow> matmul_rows();
std::span<const OpRow> attention_rows();
std::span<const OpRow> view_rows();
std::span<const OpRow> split_rows();
std::span<const OpRow> norm_rows();
std::span<const OpRow> batch_norm_rows();
std::span<const OpRow> conv_rows();
std::span<const OpRow> pool_rows();
std::span<const OpRow> upsample_rows();
std::span<const OpRow> index_rows();
std::span<const OpRow> embedding_bag_rows();
std::span<const OpRow> arrange_rows();
std::span<const OpRow> factory_rows();
std::span<const OpRow> linalg_rows();
std::span<const OpRow> fft_rows();
std::span<const OpRow> resample_rows();
std::span<const OpRow> margin_loss_rows();
std::span<const OpRow> cuda_attention_rows();
std::span<const OpRow> recurrent_rows();
std::span<const OpRow> random_rows();  // smelt's own, of numbers that kernels draw

}  // namespace smelt
