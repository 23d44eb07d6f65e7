"""PyTorch's switches turned inside of compiled functions, and the guard on those that are turned outside."""

import contextlib

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from rounding import equal_or_near

import smelt


def inference(x):
    y = x * 2
    with torch.inference_mode():
        z = y + 1
    return y, z, z.is_inference(), torch.is_inference_mode_enabled()


def inference_off_inside(x):
    with torch.inference_mode():
        y = x * 2
        with torch.inference_mode(False):
            z = x + 1
    return y, z, y.is_inference(), z.is_inference()


@torch.inference_mode()
def decorated(x):
    return x * 3


def calls_decorated(x):
    return decorated(x + 1).sum(), x * 2


def attention(x):
    y = x * 2
    with sdpa_kernel(SDPBackend.MATH):
        z = F.scaled_dot_product_attention(y, y, y)
    return z, F.scaled_dot_product_attention(y, y, y)


def no_saved_hooks(x):
    with torch.autograd.graph.disable_saved_tensors_hooks('none here'):
        y = x.sin()
        with torch.autograd.graph.disable_saved_tensors_hooks('nor here'):
            y = y.sin()
    return y * 2


def grad_mode(x):
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = x * 3
    with torch.autocast('cpu', dtype=torch.bfloat16):
        w = x @ x.transpose(-1, -2)
    return y, z, w


FOLLOWED = [inference, inference_off_inside, calls_decorated, attention, no_saved_hooks, grad_mode]


def same(found, expected):
    assert type(found) is type(expected)
    if isinstance(found, torch.Tensor):
        for fact in ('dtype', 'shape', 'requires_grad'):
            assert getattr(found, fact) == getattr(expected, fact)
        assert found.is_inference() == expected.is_inference()
        return equal_or_near(found.detach().clone(), expected.detach().clone())
    if isinstance(found, tuple):
        return len(found) == len(expected) and all(same(a, b) for a, b in zip(found, expected))
    return found == expected


@pytest.mark.parametrize('grads', [False, True])
@pytest.mark.parametrize('fn', FOLLOWED, ids=lambda fn: fn.__name__)
def test_is_part_of_the_graph(fn, grads):
    x = torch.randn(1, 2, 4, 4, requires_grad=grads)
    compiled = smelt.compile(fn, fullgraph=True)
    for _ in range(3):
        assert same(compiled(x), fn(x))
        assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
        assert torch.backends.cuda.flash_sdp_enabled() and torch.backends.cuda.math_sdp_enabled()
    assert smelt.stats()['graph_breaks'] == 0 and smelt.stats()['cache_hits'] == 2


def broken_inside(x):
    with torch.inference_mode():
        y = x * 2
        print('inside')
        y = y + 1
    z = x * 3
    with sdpa_kernel(SDPBackend.MATH):
        print('inside')
        z = F.scaled_dot_product_attention(z, z, z)
    return y, z


def test_break_inside(capsys):
    x = torch.randn(1, 2, 4, 4)
    compiled = smelt.compile(broken_inside)
    for _ in range(3):
        assert same(compiled(x), broken_inside(x))
        assert not torch.is_inference_mode_enabled() and torch.backends.cuda.flash_sdp_enabled()
    # Nothing is left switched on: ops are written down as before.
    other = smelt.compile(lambda x: (x * 2).sin(), fullgraph=True)
    for _ in range(2):
        assert torch.allclose(other(x), (x * 2).sin(), atol=1e-6)
    assert smelt.explain(other)(x).graph_count == 1


def raises_inside(x):
    with torch.inference_mode():
        y = x * 2
        if x.shape[0] > 1:
            raise ValueError('inside')
    return y


def test_error_inside():
    compiled = smelt.compile(raises_inside)
    for size in (1, 1, 2, 2, 1):
        with pytest.raises(ValueError) if size > 1 else contextlib.nullcontext():
            compiled(torch.ones(size))
        assert not torch.is_inference_mode_enabled()
    other = smelt.compile(lambda x: x * 2 + 1, fullgraph=True)
    assert torch.equal(other(torch.ones(2)), torch.full((2,), 3.0))
    assert torch.equal(other(torch.ones(2)), torch.full((2,), 3.0))


@contextlib.contextmanager
def matmul_precision(value):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(value)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def test_precision_of_products_is_guarded():
    compiled = smelt.compile(lambda x: x @ x)
    x = torch.randn(4, 4)
    for precision, segments in (('highest', 1), ('medium', 2), ('highest', 2), ('medium', 2)):
        with matmul_precision(precision):
            for _ in range(2):
                compiled(x)
        assert smelt.stats()['segments'] == segments


def test_the_default_dtype_is_that_of_each_op():
    def mixed(x):
        torch.set_default_dtype(torch.float64)
        wide = torch.ones(3)
        torch.set_default_dtype(torch.float32)
        return x + wide, torch.ones(3) / 2

    compiled = smelt.compile(mixed)
    for _ in range(3):
        assert [t.dtype for t in compiled(torch.ones(3))] == [torch.float64, torch.float32]
        assert torch.get_default_dtype() == torch.float32
