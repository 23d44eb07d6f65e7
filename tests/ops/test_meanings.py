"""Every op that kernels compute, or that is written as such ops, against eager: by machine code and by the loop
interpreter, over arguments that torch's own tests use, element types, sizes and strides."""

import functools
import warnings

import aten_calls
import generated
import hand_made_calls
import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

import smelt
from smelt import _native

DTYPES = (torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool)
SHAPES = ((0, 3), (1,), (), (7,), (33,), (3, 100))
BACKENDS = ("native", "interpret")
# Tensors whose sizes do not fit together make PyTorch read outside of them.
FRAGILE = ("batch_norm", "embedding", "nll_loss", "backward", "_fused_", "scatter", "upsample", "index", "im2col", "col2im")
# PyTorch's kernel reads weights, or indices, as if they were contiguous; recorded, the op is a clone, which keeps strides.
CONTIGUOUS = ("native_group_norm", "adaptive_max_pool3d_backward", "lift_fresh_copy")
# They share memory with an argument and do not say so.
UNSAFE_VIEWS = ("aten::_unsafe_view", "aten::unsafe_split")
# Kernels are not asked for this: the caller gets his own tensor back.
NEVER_NATIVE = {"aten::lift"}
# Nothing is made of these on the CPU: tests/cuda has them.
ON_CUDA = {"aten::cudnn_batch_norm!", "aten::cudnn_batch_norm_backward", "aten::_embedding_bag", "aten::_embedding_bag_backward",
           "aten::_embedding_bag_dense_backward", "aten::_embedding_bag_forward_only"}


@functools.cache
def samples():
    found = aten_calls.collect(sorted(_native.meaning_forms()))
    for name, calls in hand_made_calls.hand_made().items():
        found.setdefault(name, []).extend(calls)
    return found


def overload_of(name):
    base, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def variants(name, calls):
    """The calls as they are; the largest also otherwise."""
    yield from ((f"sample {i}", call) for i, call in enumerate(calls))
    first = max(calls, key=lambda call: max((t.numel() for t in aten_calls.tensors(call)), default=0))
    for dtype in DTYPES:
        yield str(dtype), aten_calls.with_dtype(first, dtype)
    for shape in () if any(word in name for word in FRAGILE) else SHAPES:
        yield f"shape {shape}", aten_calls.with_shape(first, shape)
    changes = (aten_calls.transposed, aten_calls.sliced, aten_calls.expanded)
    for change in () if any(word in name for word in CONTIGUOUS) else changes:
        yield change.__name__, change(first)


def fresh(call):
    """The same tensors in memory of their own, with their strides."""

    def copy(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        storage = leaf.untyped_storage().clone()
        return torch.empty(0, dtype=leaf.dtype).set_(storage, leaf.storage_offset(), leaf.shape, leaf.stride())

    return tree_map(copy, call)


def is_view(op):
    reads = [a.alias_info for a in op._schema.arguments if a.alias_info and not a.alias_info.is_write]
    return bool(reads) or op._schema.name.startswith(UNSAFE_VIEWS)


def function_of(op):
    if not is_view(op):
        return lambda args, kwargs: op(*args, **kwargs)
    # A view of an argument is the caller's; what reads it looks through it.
    return lambda args, kwargs: [leaf.clone() for leaf in tree_leaves(op(*args, **kwargs))]


def check(actual, expected, call, op):
    for mine, theirs in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        if not isinstance(theirs, torch.Tensor):
            assert mine == theirs
            continue
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        if theirs.numel() > 1:
            assert mine.stride() == theirs.stride()
    try:
        torch.testing.assert_close(actual, expected, equal_nan=True)
    except AssertionError:
        if not is_as_near(actual, expected, call, op):
            raise


def is_as_near(actual, expected, call, op):
    """Where eager itself is far from the result in double precision, that is what counts."""

    def precise(leaf):
        return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    args, kwargs = tree_map(precise, call)
    try:
        reference = function_of(op)(args, kwargs)
    except RuntimeError:
        return False
    for mine, theirs, exact in zip(tree_leaves(actual), tree_leaves(expected), tree_leaves(reference)):
        if not theirs.is_floating_point():
            if not torch.equal(mine, theirs):
                return False
            continue
        if not torch.equal(mine.isfinite(), theirs.isfinite()):
            return False
        far = [(values.double() - exact).abs().nan_to_num(0, 0, 0).max().item() for values in (mine, theirs)]
        if far[0] > 2 * far[1]:
            return False
    return True


@pytest.mark.parametrize("name", sorted(name for name in set(_native.meaning_forms()) - ON_CUDA if name.startswith("aten::")))
def test_meaning(name):
    calls = samples().get(name)
    assert calls, "no call of this op: add one to hand_made_calls.py"
    op = overload_of(name)
    native_before = smelt.stats()["ops_native"]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for what, call in variants(name, calls):
            if call is None:
                continue
            try:
                expected = function_of(op)(*fresh(call))
            except (RuntimeError, IndexError, ValueError):
                continue  # eager does not take these
            for backend in BACKENDS:
                compiled = smelt.compile(function_of(op), backend=backend)
                try:
                    compiled(*fresh(call))  # which traces, and runs op by op
                    check(compiled(*fresh(call)), expected, call, op)
                except Exception as error:
                    raise AssertionError(f"{name}, {backend}, {what}: {call}") from error
    assert generated.more_than(native_before, smelt.stats()) or name in NEVER_NATIVE, "no kernel was made"
