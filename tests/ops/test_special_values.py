"""Zeros of both signs, infinities, NaN, the smallest and the largest numbers: kernels give what eager gives, down to the sign of a zero,
where eager's loops work in vectors and where they finish by single elements."""

import functools
import warnings

import pytest
import torch
import torch.nn.functional as F

import smelt

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool)

UNARY = {
    name: getattr(torch, name)
    for name in """abs neg sign sgn floor ceil round trunc frac sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan
    asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid square signbit isnan isinf isfinite isposinf isneginf logical_not
    nan_to_num deg2rad relu selu logit""".split()
}
UNARY |= {
    name: getattr(F, name)
    for name in """relu6 hardtanh hardsigmoid hardswish elu celu silu mish softplus softsign tanhshrink hardshrink softshrink leaky_relu
    logsigmoid""".split()
}
UNARY |= {
    "threshold": lambda x: F.threshold(x, 0.0, 0.0),
    "clamp": lambda x: (x.clamp(0, 1), x.clamp(-0.0, 1), x.clamp_min(0), x.clamp_max(0), x.clamp_min(-0.0), x.clamp_max(-0.0)),
    "arithmetic": lambda x: (x * 0, x + 0.0, x + -0.0, x - 0.0, 0 - x, x * 1, x / 1, x / 0.0),
    "powers": lambda x: (x**2, x**0.5, x**0, x**3, x**-0.5),
    "remainders": lambda x: (x // 2, x % 3, x % -3, torch.fmod(x, 3), torch.div(x, 2, rounding_mode="trunc")),
    "casts": lambda x: (x.bool(), x.bfloat16(), x.half(), x.float(), x.double()),
    "casts to integers": lambda x: (x.to(torch.int32), x.to(torch.int64), x.to(torch.int8)),
    "heaviside": lambda x: torch.heaviside(x, torch.ones((), dtype=x.dtype)),
    "bits": lambda x: (x.bitwise_not(), x & 3, x << 1, x >> 1),
}
BINARY = {
    name: getattr(torch, name)
    for name in """add sub mul div floor_divide pow atan2 maximum minimum fmax fmin copysign hypot logaddexp logaddexp2 xlogy heaviside
    eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor""".split()
}
BINARY |= {
    "rounded quotient": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "clamp by tensors": lambda a, b: (torch.clamp(a, b, b), torch.clamp(a, b), torch.clamp(a, None, b), torch.clamp_min(a, b)),
    "where": lambda a, b: torch.where(a > b, a, b),
    "addcmul": lambda a, b: torch.addcmul(a, a, b),
    "losses": lambda a, b: (F.smooth_l1_loss(a, b, reduction="none"), F.huber_loss(a, b, reduction="none")),
}
EXTREMES = {
    "amax": lambda x: (x.amax(-1), x.amax(0), x.amax()),
    "amin": lambda x: (x.amin(-1), x.amin(0), x.amin()),
    "max": lambda x: (x.max(), x.min()),
    "max.dim": lambda x: (*x.max(-1), *x.min(0)),
    "aminmax": lambda x: tuple(x.aminmax(dim=-1)),
    "running": lambda x: (x.cummax(-1)[0], x.cummin(-1)[0], x.cumsum(-1), x.cumprod(-1)),
    "totals": lambda x: (x.sum(-1), x.prod(-1), x.mean(-1), x.norm(float("inf"), -1)),
    "pooled": lambda x: F.max_pool2d(x[None, None], 2, 1),
    "of magnitudes": lambda x: (x.abs().amax(-1), x.abs().amin()),
    "then a sign": lambda x: (1 / x.amax(-1), x.amin(0).signbit()),
    "softmax by hand": lambda x: (x - x.amax(-1, keepdim=True)).exp(),
}


@functools.cache
def values(dtype):
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        some = [0, 1, 2, 3, 7, info.max, info.min, info.max - 1, info.min + 1]
        return torch.tensor(some + ([-1, -2, -7] if info.min < 0 else []), dtype=dtype)
    info = torch.finfo(dtype)
    some = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 3.0, info.tiny, -info.tiny, info.tiny / 4]
    return torch.cat([torch.tensor([*some, info.max, info.min], dtype=dtype), -torch.tensor([float("nan")], dtype=dtype)])


def around(tensor, count, shift):
    return tensor.repeat(count // len(tensor) + 2)[shift : shift + count].clone()


def single(dtype):
    some = values(dtype)
    return [(around(some, count, shift),) for count, shift in ((5, 0), (7, 1), (40, 2), (len(some) * 7 + 3, 0))]


def pairs(dtype):
    some = values(dtype)
    a, b = some.repeat_interleave(len(some)), some.repeat(len(some))
    a, b = torch.cat([a, a[:3]]), torch.cat([b, b[:3]])
    return [(a, b), (a[1:].clone(), b[1:].clone()), (around(some, 5, 0), around(some, 5, 1)), (around(some, 5, 1), around(some, 5, 0))]


def listed(found):
    return list(found) if isinstance(found, (tuple, list)) else [found]


def assert_same(actual, expected, arguments):
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    if not expected.is_floating_point():
        assert torch.equal(actual, expected)
        return
    nan = expected.isnan()
    wrong = (actual.isnan() != nan) | (((actual.signbit() != expected.signbit()) | (actual.isinf() != expected.isinf())) & ~nan)
    if wrong.any():
        place = wrong.reshape(-1).nonzero()[0].item()
        given = [t.reshape(-1)[place].item() for t in arguments if t.numel() > place]
        mine, theirs = actual.reshape(-1)[place].item(), expected.reshape(-1)[place].item()
        raise AssertionError(f"{mine} where eager has {theirs}, element {place} of {tuple(expected.shape)} {expected.dtype}, of {given}")


def check(function, calls, backend="native"):
    """All calls in one program."""
    fitting = []
    for call in calls:
        try:
            fitting.append((call, listed(function(*call))))
        except (RuntimeError, NotImplementedError, ValueError):
            continue  # not for this dtype
    if not fitting:
        return
    compiled = smelt.compile(lambda calls: [listed(function(*call)) for call in calls], backend=backend)
    for _ in range(2):
        for (call, expected), found in zip(fitting, compiled([call for call, _ in fitting]), strict=True):
            for mine, theirs in zip(found, expected, strict=True):
                assert_same(mine, theirs, call)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", UNARY)
def test_of_one_operand(name):
    for dtypes in (FLOATS, INTEGERS):
        check(UNARY[name], [call for dtype in dtypes for call in single(dtype)])


@pytest.mark.slow
@pytest.mark.parametrize("name", BINARY)
def test_of_two_operands(name):
    for dtypes in (FLOATS, INTEGERS):
        check(BINARY[name], [call for dtype in dtypes for call in pairs(dtype)])


@pytest.mark.parametrize("name", ("maximum", "minimum", "fmax", "clamp by tensors"))
def test_the_greater_of_two_zeros(name):
    zeros = torch.tensor([0.0, -0.0])
    calls = []
    for dtype in FLOATS:
        for count in (1, 2, 15, 16, 17, 31, 32, 33, 63, 65, 128, 200):
            a = zeros.to(dtype)[torch.arange(count) % 2]
            calls.append((a, -a))
    calls.append((calls[0][0], torch.tensor([-0.0, 0.0, 0.0])))
    check(BINARY[name], calls)


def zeros_and(others, shape, dtype):
    pool = torch.tensor([0.0, -0.0, *others], dtype=dtype)
    return pool[torch.randint(len(pool), shape, generator=torch.Generator().manual_seed(0))]


@pytest.mark.parametrize("backend", ("native", "interpret"))
@pytest.mark.parametrize("name", EXTREMES)
def test_reductions_of_zeros(name, backend):
    shapes = ((2, 2), (3, 5), (4, 17), (2, 33), (5, 64), (3, 70), (2, 200), (70, 3))
    calls = [(zeros_and(others, shape, dtype),) for dtype in FLOATS for shape in shapes for others in ((), (-1.0,), (1.0,))]
    check(EXTREMES[name], calls[:: 1 if backend == "native" else 5], backend)


@pytest.mark.parametrize("name", EXTREMES)
def test_reductions_of_special_values(name):
    calls = []
    for dtype in FLOATS:
        some = values(dtype)
        calls += [(around(some, 3 * count, shift).view(3, count),) for count in (2, 5, 33) for shift in (0, 1, 5)]
    check(EXTREMES[name], calls)
