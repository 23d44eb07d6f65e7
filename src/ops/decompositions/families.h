// The tables of decompositions, one per family of ops. meaning.cpp puts them together with those of
// ops/meanings; an op stands in one table only.
#pragma once

#include <span>

#include "ops/rules/op_meaning.h"

namespace smelt {

std::span<const Meaning> norm_decompositions();  // layer and group norm
std::span<const Meaning> batch_norm_decompositions();
std::span<const Meaning> reduce_decompositions();  // means, variances, norms, pairs of extremes
std::span<const Meaning> vector_decompositions();  // distances, cross products
std::span<const Meaning> softmax_decompositions();
std::span<const Meaning> embedding_bag_decompositions();  // their gradients
std::span<const Meaning> loss_decompositions();
std::span<const Meaning> class_loss_decompositions();
std::span<const Meaning> foreach_decompositions();
std::span<const Meaning> split_decompositions();
std::span<const Meaning> optimizer_decompositions();
std::span<const Meaning> product_decompositions();  // matrix products that are small

}  // namespace smelt
