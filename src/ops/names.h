// Names of ops that stages write or call by themselves. What a stage has to know of an op that it
// meets is a fact (facts.h).
#pragma once

#include "graph/op_name.h"

namespace smelt::names {

inline const OpName kClone("aten::clone");
inline const OpName kConj("aten::_conj");
inline const OpName kConjPhysical("aten::_conj_physical");
inline const OpName kDetach("aten::detach");
inline const OpName kLiftFreshCopy("aten::lift_fresh_copy");
// Whether oneDNN computes with these dtypes on this processor.
inline const OpName kOnednnTakesBf16("mkldnn::_is_mkldnn_bf16_supported");
inline const OpName kOnednnTakesF16("mkldnn::_is_mkldnn_fp16_supported");
inline const OpName kZeros("aten::zeros");
// Zeros without memory: what it means to multiply by them is the dispatcher's business.
inline const OpName kZerosWithoutMemory("aten::_efficientzerotensor");

}  // namespace smelt::names
