"""Small matrix products are computed by kernels, with what is around them."""

import pytest
import torch
from generated import HAS_KERNELS
from native_check import check

import smelt

DTYPES = pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.float16))
BACKENDS = pytest.mark.parametrize("backend", ("native", "interpret"))


def tensors(*shapes, dtype=torch.float32):
    def make():
        generator = torch.Generator().manual_seed(0)
        return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)

    return make


def calls(function, make_inputs, **settings):
    """How many ops of the compiled function are called; the results are checked."""
    smelt.reset()
    check(function, make_inputs, scale=4.0, **settings)
    return smelt.stats()["ops_fallback"]


PRODUCTS = {
    "mm": (lambda a, b: (a @ b).relu(), (5, 7), (7, 6)),
    "transposed": (lambda a, b: a @ b.t() + 1, (5, 7), (6, 7)),
    "both_transposed": (lambda a, b: a.t() @ b.t(), (7, 5), (6, 7)),
    "linear": (lambda x, w, b: torch.nn.functional.linear(x, w, b) * 2, (4, 3, 7), (6, 7), (6,)),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), (6,), (5, 7), (7, 6)),
    "addmm_of_a_matrix": (lambda c, a, b: torch.addmm(c, a, b, alpha=-1), (5, 6), (5, 7), (7, 6)),
    "addmm_without_self": (lambda c, a, b: torch.addmm(c / 0, a, b, beta=0), (6,), (5, 7), (7, 6)),
    "bmm": (lambda a, b: torch.bmm(a, b) * 2, (3, 4, 7), (3, 7, 5)),
    "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b, beta=2), (3, 1, 5), (3, 4, 7), (3, 7, 5)),
    "expanded": (lambda a, b: a.expand(3, 4, 7) @ b * 2, (4, 7), (3, 7, 5)),
    "mv": (lambda a, b: a @ b, (33, 65), (65,)),
    "addmv": (lambda c, a, b: torch.addmv(c, a, b, alpha=3), (33,), (33, 65), (65,)),
    "dot": (lambda a, b: a.dot(b), (65,), (65,)),
    "row": (lambda a, b: a @ b, (1, 200), (200, 130)),
    "column": (lambda a, b: a @ b, (130, 200), (200, 1)),
    "one": (lambda a, b: a @ b, (1, 1), (1, 1)),
    "softmax": (lambda a, b: torch.softmax(a @ b, -1), (5, 7), (7, 6)),
    "normalised": (lambda a, b: torch.layer_norm(a, (7,)) @ b, (5, 7), (7, 6)),
}


@BACKENDS
@DTYPES
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name, dtype, backend):
    function, *shapes = PRODUCTS[name]
    called = calls(function, tensors(*shapes, dtype=dtype), coarsest=dtype, backend=backend)
    assert called == 0 or (backend == "native" and not HAS_KERNELS)


def test_large_ones_are_called():
    assert calls(lambda a, b: a @ b, tensors((64, 64), (64, 64))) == 1


def test_integers_and_nothing_are_called():
    assert calls(lambda a: a @ a, lambda: (torch.arange(9).reshape(3, 3),)) == 1
    check(lambda a, b: a @ b, tensors((3, 0), (0, 4)))


@pytest.mark.parametrize("options", ({"fusion": "none"}, {"fusion": "pointwise"}, {"max_fused_nodes": 1}))
def test_without_fusion(options):
    check(lambda a, b: torch.relu(a @ b + 1), tensors((5, 7), (7, 6)), options=options)


def test_a_layer_is_one_kernel():
    layer = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU())
    smelt.reset()
    compiled, x = smelt.compile(layer), torch.randn(8, 16)
    with torch.no_grad():
        compiled(x)
        torch.testing.assert_close(compiled(x), layer(x))
    assert smelt.stats()["kernels"] == 1 or not HAS_KERNELS


def test_training():
    def make():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))

    model, other = make(), make()
    compiled, x = smelt.compile(model), torch.randn(5, 6)
    for _ in range(3):
        for each in (compiled, other):
            each.zero_grad()
            each(x).pow(2).sum().backward()
        for mine, theirs in zip(model.parameters(), other.parameters()):
            torch.testing.assert_close(mine.grad, theirs.grad)


def test_nan_and_infinity_spread():
    a, b = torch.eye(4), torch.ones(4, 4)
    a[1, 2], a[2, 1] = float("nan"), float("inf")
    check(lambda a, b: a @ b, lambda: (a, b))
    check(lambda a, b: a @ (b * 0), lambda: (a, b))
