// smelt's own ops: the only nodes that change something, and the few a recording needs beside
// aten's. All have Traits::effect except where said.
#pragma once

#include "graph/op_name.h"

namespace smelt::effects {

// write(%input, %value) -> %after: the input's memory now holds the value. %after is that same
// memory, so views of %after alias the caller's tensor. Traits: effect, view.
inline const OpName kWrite("smelt::write");
// set_grad(%input, %value): the input's .grad becomes the value.
inline const OpName kSetGrad("smelt::set_grad");
// clear_grad(%input): the input's .grad becomes None.
inline const OpName kClearGrad("smelt::clear_grad");
// expect_no_grad(%input): the program was written down while the input's .grad was None and adds to
// it; an error if there is one now.
inline const OpName kExpectNoGrad("smelt::expect_no_grad");
// save_rng(device) -> %state: the state of the device's default generator, a u8 tensor.
// Traits: random.
inline const OpName kSaveRng("smelt::save_rng");
// restore_rng(generator, %state): puts it back. Traits: effect, random.
inline const OpName kRestoreRng("smelt::restore_rng");
// mutating ops that say nothing of it in their schema (cudnn_batch_norm) are written down as
// "<op>!": arguments listed in a leading int list are fresh copies that the op changes, and the
// changed copies are appended to its results. is_mutator tells such names apart.
bool is_mutator(OpName op);
// "aten::x!" -> "aten::x"
OpName mutated_op(OpName op);
// "aten::x" -> "aten::x!"
OpName mutator_of(OpName op);

}  // namespace smelt::effects
