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


# -- the default dtype

@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def mixed(x):
    torch.set_default_dtype(torch.float64)
    wide = torch.ones(3)
    torch.set_default_dtype(torch.float32)
    return x + wide, torch.ones(3) / 2


def restored(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        made = (torch.zeros(3), torch.full((3,), 0.5), torch.linspace(0, 1, 3), torch.arange(3), torch.tensor([0.1, 0.2, 0.3]), torch.eye(3))
        y = sum(made[:-1], x) @ made[-1]
        dtype = torch.get_default_dtype()
    finally:
        torch.set_default_dtype(before)
    return y, made[1], torch.full((3,), 0.5), dtype


def narrow(x):
    with default_dtype(torch.bfloat16):
        y = torch.zeros(3) + torch.rand(3)
    return y + x, torch.get_default_dtype()


@pytest.mark.parametrize('outside', [torch.float32, torch.float64])
@pytest.mark.parametrize('fn', [mixed, restored, narrow], ids=lambda fn: fn.__name__)
def test_the_default_dtype_is_that_of_each_op(fn, outside):
    x = torch.ones(3, dtype=torch.float32)
    with default_dtype(torch.float32 if fn is mixed else outside):
        compiled = smelt.compile(fn)
        for _ in range(3):
            before = torch.get_default_dtype()
            torch.manual_seed(0)
            found = compiled(x)
            torch.manual_seed(0)
            assert same(found, fn(x)) and torch.get_default_dtype() == before
    if outside == torch.float32:
        assert smelt.stats()['graph_breaks'] == 0 and smelt.stats()['cache_hits'] == 2


def test_a_default_dtype_that_is_left():
    def leaves(x, dtype):
        torch.set_default_dtype(dtype)
        return torch.ones(3) * x

    compiled, x = smelt.compile(leaves), torch.ones(3, dtype=torch.bfloat16)
    with default_dtype(torch.float32):
        for dtype in (torch.float64, torch.float64, torch.float32, torch.float32, torch.float64, torch.float32):
            assert compiled(x, dtype).dtype == dtype == torch.get_default_dtype()


def test_ops_that_ask_for_the_default_dtype():
    def promotes(n, scale):
        with default_dtype(torch.float64):
            half = n / 2
            scaled = n * 0.5
            root = n.sqrt()
            by_number = n * scale
        return half, scaled, root, by_number, n / 2

    compiled, n = smelt.compile(promotes), torch.arange(4)
    for scale in (1.5, 1.5, 2.5, 3.5):
        assert same(compiled(n, scale), promotes(n, scale)) and torch.get_default_dtype() == torch.float32


# -- switches that are read, and set to what they are

def asks_for_settings(x):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(before)
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(deterministic, warn_only=torch.is_deterministic_algorithms_warn_only_enabled())
    return x @ x * (2 if before == 'highest' else 3), deterministic


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason='here ops depend on it')
def test_settings_are_read_and_left():
    asks_for_settings(x := torch.randn(4, 4))  # the first time it is set to what it stands for
    compiled = smelt.compile(asks_for_settings)
    for _ in range(3):
        assert same(compiled(x), asks_for_settings(x))
    assert smelt.stats()['graph_breaks'] == 0, smelt.explain(asks_for_settings)(x)
    for precision in ('high', 'highest', 'high'):
        with matmul_precision(precision):
            for _ in range(2):
                assert same(compiled(x), asks_for_settings(x)) and torch.get_float32_matmul_precision() == precision
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        for _ in range(2):
            assert same(compiled(x), asks_for_settings(x)) and torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    assert compiled(x)[1] is False


def switches_settings(x):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision('medium')
    inside = torch.get_float32_matmul_precision()
    y = x @ x
    torch.set_float32_matmul_precision(before)
    torch.use_deterministic_algorithms(True)
    z = y.cumsum(0), torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    return inside, z, torch.get_float32_matmul_precision()


def test_settings_that_are_switched_are_switched_in_each_call():
    compiled, x = smelt.compile(switches_settings), torch.randn(4, 4)
    for precision in ('highest', 'highest', 'high', 'highest'):
        with matmul_precision(precision):
            found, expected = compiled(x), switches_settings(x)
            assert found[0] == expected[0] == 'medium' and found[2] == precision and found[1][1] is True
            torch.testing.assert_close(found[1][0], expected[1][0], rtol=2e-2, atol=2e-2)
            assert not torch.are_deterministic_algorithms_enabled()


def tf32(x):
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = not before
    y = x * (2 if torch.backends.cuda.matmul.allow_tf32 else 3)
    torch.backends.cuda.matmul.allow_tf32 = before
    return y


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason='here ops depend on it')
def test_products_of_cuda_are_switched():
    compiled, x = smelt.compile(tf32), torch.randn(3)
    for allowed in (False, False, True, True, False):
        torch.backends.cuda.matmul.allow_tf32 = allowed
        assert torch.equal(compiled(x), tf32(x)) and torch.backends.cuda.matmul.allow_tf32 is allowed
    torch.backends.cuda.matmul.allow_tf32 = False
    assert smelt.stats()['graph_breaks'] == 0, smelt.explain(tf32)(x)
