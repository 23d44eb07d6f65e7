"""The shape rules against PyTorch: every op that runs under OpInfo's samples, forwards and backwards.

SMELT_SHAPES_ALL=1 takes every sample, otherwise a fixed few of each op.
"""

import itertools
import os
import warnings

# oneDNN would use AMX where the processor has it, also where the machine it runs on does not let it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import noncontiguous_like
from torch.testing._internal.opinfo import core
from torch.utils._pytree import tree_leaves, tree_map

from shape_check import ShapeChecker, first_of_each

EVERYTHING = os.environ.get("SMELT_SHAPES_ALL") == "1"
SAMPLES = None if EVERYTHING else 2  # of each dtype; of float32 three times as many
DTYPES = [torch.float32, torch.int64, torch.bfloat16, torch.complex64, torch.bool]
# Ops that take long, crash, or read from outside.
LEFT_OUT = {"empty_quantized"}


def samples_of(op, dtype, requires_grad):
    try:
        few = SAMPLES * 3 if SAMPLES and dtype == torch.float32 else SAMPLES
        yield from itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=requires_grad), few)
    except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError):
        return


def run_sample(checker, op, sample, backwards):
    """Runs the op, and the backward of what it returned."""
    try:
        with checker:
            out = op(sample.input, *sample.args, **sample.kwargs)
            if not backwards:
                return
            outs = [o for o in tree_leaves(out) if isinstance(o, torch.Tensor) and o.requires_grad]
            if outs:
                torch.autograd.backward(outs, [torch.ones_like(o) for o in outs])
    except Exception:  # what PyTorch itself refuses is no matter of this test
        pass


def noncontiguous(sample):
    def one(value):
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            return noncontiguous_like(value)
        return value

    return tree_map(one, (sample.input, sample.args, sample.kwargs))


def run_op(checker, op, dtype):
    backwards = op.supports_autograd and dtype in op.backward_dtypes
    for sample in samples_of(op, dtype, backwards):
        checker.context = f"{op.name} {dtype}"
        run_sample(checker, op, sample, backwards)
    for sample in samples_of(op, dtype, backwards):
        checker.context = f"{op.name} {dtype} noncontiguous"
        try:
            sample.input, sample.args, sample.kwargs = noncontiguous(sample)
        except (RuntimeError, TypeError):
            continue
        run_sample(checker, op, sample, backwards)


def run_errors(checker, op):
    """Samples PyTorch refuses: a rule must not answer for them."""
    try:
        inputs = list(op.error_inputs("cpu"))
    except (RuntimeError, TypeError, AttributeError, NotImplementedError):
        return
    for error in inputs:
        checker.context = f"{op.name} error"
        run_sample(checker, op, error.sample_input, False)


@pytest.fixture(scope="module")
def checker():
    torch.manual_seed(0)
    checker = ShapeChecker()
    # OpInfo asks at each sample which test it runs in, and seeds, which writes down the stack for each device that is
    # not started: half of the time of this test.
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        for module in (common_utils, core):
            patch.setattr(module, "extract_test_fn", lambda: None)
        patch.setattr(torch, "manual_seed", torch.default_generator.manual_seed)
        warnings.simplefilter("ignore")
        for op in op_db:
            if op.name in LEFT_OUT:
                continue
            for dtype in DTYPES:
                if dtype in op.dtypes:
                    run_op(checker, op, dtype)
            run_errors(checker, op)
    print("\n" + checker.report())
    return checker


def test_rules_agree_with_pytorch(checker):
    assert not checker.mismatches, f"{len(checker.mismatches)} mismatches\n" + first_of_each(checker.mismatches)


def test_rules_notice_errors(checker):
    assert not checker.unnoticed, f"{len(checker.unnoticed)} unnoticed\n" + first_of_each(checker.unnoticed)


def test_rules_answer_often(checker):
    assert checker.calls["rule"] > 0.9 * sum(checker.calls.values())
