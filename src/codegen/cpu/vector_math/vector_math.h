// Elementary functions on vectors of f32 and f64, written as LLVM instructions: polynomials, no
// tables, no branches. NaN, infinities, signed zeros, denormals and overflow are as in C; errors in
// units of the last place are in docs/design/vector_math.md and under test (vector_math_test.cpp).
//
// Two things are rarely needed and left to the C library, lane by lane, behind a branch: angles
// beyond 2^17 (f32) or 2^26 (f64) in sin, cos and tan, and quotients that do not fit the mantissa
// in mod. So code with these ops needs the symbols sinf, cosf, tanf, fmodf and sin, cos, tan, fmod,
// and emit_math adds internal functions to the module ("smelt.sin.f32x8"). The caller's basic block
// stays whole.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "loops/kernel.h"

namespace smelt {

// `op` is a floating op of nodes.def (exp, log, tanh, erf, pow, ...; also floor, round, sqrt, ...)
// or mod; x, y are scalars or fixed vectors of float or double. y: of the two-argument ops. The
// builder's fast-math flags are not used: lanes give the same bits in scalars and vectors of any
// width.
llvm::Value* emit_math(llvm::IRBuilder<>& ir, loops::Op op, llvm::Value* x,
                       llvm::Value* y = nullptr);

}  // namespace smelt
