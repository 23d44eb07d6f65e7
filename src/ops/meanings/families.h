// The tables of elements, reductions, scans and updates, one per family of ops. meaning.cpp puts
// them together; an op stands in one table only.
#pragma once

#include <span>

#include "ops/rules/op_meaning.h"

namespace smelt {

std::span<const Meaning> arithmetic_meanings();  // one and two operands: add, div, pow, exp, round
std::span<const Meaning> pointwise_meanings();   // comparisons, logic, bits, clamps, where, lerp
std::span<const Meaning> copy_meanings();        // casts, clones, fills, masked_fill
std::span<const Meaning> activation_meanings();  // also glu, hardtanh, prelu's forward, threshold
std::span<const Meaning> activation_gradient_meanings();  // their gradients, dropout's
std::span<const Meaning> view_meanings();     // also *_copy of views, flip, roll, repeat
std::span<const Meaning> gather_meanings();   // index, gather, embedding, cat, stack, triangles
std::span<const Meaning> scatter_meanings();  // writes into views, gradients, scatters
std::span<const Meaning> update_meanings();   // index_add, index_copy, gradients of gathers
std::span<const Meaning> scan_meanings();     // cumsum, cumprod
std::span<const Meaning> pad_meanings();      // pads, nearest upsampling, pixel shuffles
std::span<const Meaning> pad_gradient_meanings();
std::span<const Meaning> search_meanings();  // bucketize, searchsorted
std::span<const Meaning> unfold_meanings();  // im2col, col2im
std::span<const Meaning> pool_meanings();    // averages of windows
std::span<const Meaning> max_pool_meanings();
std::span<const Meaning> adaptive_pool_meanings();
std::span<const Meaning> interpolate_meanings();  // linear, cubic
std::span<const Meaning> interpolate_gradient_meanings();
std::span<const Meaning> factory_meanings();  // full, arange, eye, *_like, new_*
std::span<const Meaning> random_meanings();   // smelt's own, of numbers that kernels draw
std::span<const Meaning> reduce_meanings();   // sum, prod, amax, max, argmax, any, nansum, trace

}  // namespace smelt
