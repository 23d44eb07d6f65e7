"""Compound ops, which kernels compute as simpler ones: the results of generated code and of its interpreter are eager's,
up to rounding, in the same layout."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

import smelt

aten = torch.ops.aten
FLOATS = [torch.float32, torch.bfloat16] + [
    pytest.param(dtype, marks=pytest.mark.slow) for dtype in (torch.float64, torch.float16)
]
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 2e-5, torch.float64: 1e-11}


def check(fn, *args, scale=1):
    """Compares a function with itself compiled."""
    with torch.no_grad():
        expected = flat(fn(*args))
        for backend in ("native", "interpret") if args[0].dtype == torch.float32 else ("native",):
            compiled = smelt.compile(fn, backend=backend, dynamic=False)
            compiled(*args)  # traces, which computes as eager does
            actual = flat(compiled(*args))
            assert len(actual) == len(expected)
            for got, wanted in zip(actual, expected, strict=True):
                assert (got.dtype, got.shape, got.stride()) == (wanted.dtype, wanted.shape, wanted.stride())
                tolerance = TOLERANCE.get(wanted.dtype, 0) * scale
                torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


def flat(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [tensor for item in result for tensor in flat(item)]


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last)


def layouts(*shape, dtype):
    """The same sizes contiguous, transposed, with gaps, spread out, and channels-last."""
    yield torch.randn(shape).to(dtype)
    yield torch.randn(shape[::-1]).to(dtype).permute(*reversed(range(len(shape))))
    yield torch.randn(*shape[:-1], shape[-1] * 2).to(dtype)[..., ::2]
    yield torch.randn(*shape[:-1], 1).to(dtype).expand(shape)
    if len(shape) == 4:
        yield channels_last(torch.randn(shape).to(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_layer_norm(dtype):
    for x in layouts(3, 4, 8, dtype=dtype):
        weight, bias = torch.randn(2, 8).to(dtype)
        check(lambda x: F.layer_norm(x, (8,)), x)
        check(lambda x, w, b: F.layer_norm(x, (8,), w, b), x, weight, bias)
        check(lambda x: aten.native_layer_norm(x, (4, 8), None, None, 0.1), x)
        y, mean, rstd = aten.native_layer_norm(x, (8,), weight, bias, 1e-5)
        mask = [True, True, True]
        check(lambda g, x, m, r, w, b: aten.native_layer_norm_backward(g, x, (8,), m, r, w, b, mask),
              y, x, mean, rstd, weight, bias, scale=4)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_layer_norm_with_wider_parameters(dtype):
    x, weight, bias = torch.randn(4, 8).to(dtype), torch.randn(8), torch.randn(8)
    check(lambda x, w, b: aten.native_layer_norm(x, (8,), w, b, 1e-5), x, weight, bias)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("shape", "groups"), [((2, 4, 3, 3), 2), ((2, 6, 5), 3), ((3, 4), 4), ((2, 4, 2, 2, 2), 1)])
def test_group_norm(dtype, shape, groups):
    x = torch.randn(shape).to(dtype)
    weight, bias = torch.randn(2, shape[1]).to(dtype)
    for x in (x, channels_last(x)) if len(shape) == 4 else (x,):
        check(lambda x: F.group_norm(x, groups), x, scale=4)
        check(lambda x, w, b: F.group_norm(x, groups, w, b), x, weight, bias, scale=4)
        sizes = [shape[0], shape[1], math.prod(shape[2:]), groups]
        y, mean, rstd = aten.native_group_norm(x, weight, bias, *sizes, 1e-5)
        check(lambda g, x, m, r, w: aten.native_group_norm_backward(g, x, m, r, w, *sizes, [True, True, True]),
              y, x, mean, rstd, weight, scale=20)  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(2, 4, 3, 3), (5, 4), (2, 4, 6)])
def test_batch_norm(dtype, shape):
    weight, bias, mean, deviation = torch.randn(4, 4).to(dtype)
    variance = deviation * deviation + 0.5
    for x in layouts(*shape, dtype=dtype):
        check(lambda x, m, v: F.batch_norm(x, m, v), x, mean, variance)
        check(lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), x, mean, variance, weight, bias)
        check(lambda x: F.batch_norm(x, None, None, training=True), x, scale=4)
        check(lambda *a: aten._native_batch_norm_legit_functional(*a, True, 0.1, 1e-5),
              x, weight, bias, mean, variance, scale=4)  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("training", [False, True])
def test_gradients_of_batch_norm(dtype, training):
    weight, mean, deviation = torch.randn(3, 4).to(dtype)
    variance = deviation * deviation + 0.5
    for x in layouts(3, 4, 2, 2, dtype=dtype):
        grad = torch.randn(3, 4, 2, 2).to(dtype)
        check(lambda g, x, w, m, v: aten.native_batch_norm_backward(
            g, x, w, m, v, m, v.rsqrt(), training, 1e-5, [True, True, True]),
            grad, x, weight, mean, variance, scale=10)  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax(dtype):
    for x, dim in itertools.product(layouts(4, 3, 8, dtype=dtype), (-1, 0, 1)):
        for fn in (F.softmax, F.log_softmax, torch._safe_softmax):
            check(lambda x, fn=fn: fn(x, dim), x)
        y = x.softmax(dim)
        check(lambda g, y: aten._softmax_backward_data(g, y, dim, dtype), x, y, scale=4)
        check(lambda g, y: aten._log_softmax_backward_data(g, y, dim, dtype), x, y.log(), scale=4)


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_of_what_is_not_finite(dtype):
    x = torch.randn(4, 8).to(dtype)
    x[1], x[2, 3], x[3, 1] = -math.inf, math.inf, math.nan
    for fn in (torch.softmax, torch.log_softmax, torch._safe_softmax, torch.logsumexp):
        check(lambda x, fn=fn: fn(x, 1), x)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("dtype", FLOATS)
def test_means_and_variances(dtype):
    for x in layouts(4, 6, 3, dtype=dtype):
        check(lambda x: (x.mean(), x.mean(1), x.mean((0, 1), True), x.mean(-1, dtype=torch.float64)), x)
        for correction in (0, 1, 2, 0.5, 100):
            check(lambda x, c=correction: (torch.var(x, correction=c), torch.std(x, 1, correction=c, keepdim=True)),
                  x, scale=4)  # fmt: skip
        check(lambda x: (torch.var_mean(x, (0, -1)), torch.std_mean(x, 0, keepdim=True)), x, scale=4)
        check(lambda x: (torch.logsumexp(x, 1), torch.logsumexp(x, (0, 2), True)), x)
    check(lambda x: (x.mean(), x.var(correction=0), x.mean(0, True)), torch.tensor(3.0).to(dtype))


def test_variance_of_equal_numbers_is_zero():
    """However their mean is rounded: the gradient of a deviation of 0 is 0."""
    for rows, columns in ((7, 5), (3, 5001)):
        x = torch.rand(rows, 1).expand(rows, columns) + 0.1
        mixed = torch.cat([x, torch.rand(2, columns)])
        for dim in (1, (0, 1)) if rows == 7 else (1,):
            check(lambda x, dim=dim: (torch.std(x, dim), torch.var(x, dim, correction=0)), x)
            check(lambda x, dim=dim: (torch.std(x, dim), torch.var_mean(x, dim)), mixed, scale=4)
        compiled = smelt.compile(lambda x: torch.std(x, 1))
        compiled(x)
        assert torch.equal(compiled(x), torch.zeros(rows))
    for number in (math.inf, -math.inf, math.nan):
        check(lambda x: (torch.var(x, 0), torch.std(x)), torch.full((5,), number))


def test_means_of_integers():
    x = torch.randint(0, 9, (4, 6))
    check(lambda x: (x.mean(dtype=torch.float32), x.mean(1, dtype=torch.float64), torch.logsumexp(x, 0)), x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("order", [0, 1, 2, 3, 2.5, -1, math.inf, -math.inf])
def test_norms(dtype, order):
    for x in layouts(4, 6, 3, dtype=dtype):
        check(lambda x: torch.linalg.vector_norm(x, order), x, scale=10)
        check(lambda x: torch.linalg.vector_norm(x, order, (0, 2), True, dtype=torch.float64), x, scale=10)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.uint8])
def test_extremes(dtype):
    few = torch.randint(0, 3, (5, 9)).to(dtype)
    for x in (few, few.t(), few[:, ::2]):
        check(lambda x: (torch.aminmax(x), torch.aminmax(x, dim=1, keepdim=True), x.max(1), x.min(0, True)), x)
    if dtype.is_floating_point:
        few[1, 3] = few[1, 5] = math.nan
        check(lambda x: (torch.aminmax(x, dim=0), x.max(1), x.min(1)), few)


LOSSES = {
    "mse": lambda a, b, **kw: F.mse_loss(a, b, **kw),
    "l1": lambda a, b, **kw: F.l1_loss(a, b, **kw),
    "smooth": lambda a, b, **kw: F.smooth_l1_loss(a, b, beta=0.5, **kw),
    "huber": lambda a, b, **kw: F.huber_loss(a, b, delta=0.7, **kw),
    "logits": lambda a, b, **kw: F.binary_cross_entropy_with_logits(a, b, **kw),
    "divergence": lambda a, b, **kw: F.kl_div(a, b, log_target=True, **kw),
}


@pytest.mark.filterwarnings("ignore:reduction. 'mean'")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("loss", LOSSES)
def test_losses(dtype, loss):
    scale = 10 if dtype.itemsize == 2 else 1  # ATen rounds each loss before it adds them up
    for x, reduction in itertools.product(layouts(4, 3, 5, dtype=dtype), ("none", "mean", "sum")):
        target = torch.randn(4, 3, 5).to(dtype)
        check(lambda a, b: LOSSES[loss](a, b, reduction=reduction), x, target, scale=scale)
        check(lambda a, b: LOSSES[loss](a, b, reduction=reduction), target, x, scale=scale)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_gradients_of_losses(dtype, reduction):
    scale = 10 if dtype.itemsize == 2 else 1
    for x in layouts(4, 3, 5, dtype=dtype):
        target = torch.randn(4, 3, 5).to(dtype)
        grad = torch.randn((4, 3, 5) if reduction == 0 else ()).to(dtype)
        check(lambda g, a, b: aten.mse_loss_backward(g, a, b, reduction), grad, x, target, scale=scale)
        check(lambda g, a, b: aten.smooth_l1_loss_backward(g, a, b, reduction, 0.5), grad, x, target, scale=scale)
        check(lambda g, a, b: aten.huber_loss_backward(g, a, b, reduction, 0.5), grad, x, target, scale=scale)
        check(lambda g, a, b: aten.binary_cross_entropy_backward(g, a.sigmoid(), b.sigmoid(), None, reduction),
              grad, x, target, scale=scale)  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(6, 5), (5,), (2, 5, 3, 4)])
def test_class_losses(dtype, reduction, shape):
    x, weight = torch.randn(shape).to(dtype), torch.rand(5).to(dtype)
    target = torch.randint(0, 5, shape[:1] + shape[2:] if len(shape) > 1 else ())
    number = {"none": 0, "mean": 1, "sum": 2}[reduction]
    forward = aten.nll_loss2d_forward if len(shape) == 4 else aten.nll_loss_forward
    backward = aten.nll_loss2d_backward if len(shape) == 4 else aten.nll_loss_backward
    for w, ignored in itertools.product((None, weight), (-100, 2)):
        check(lambda x, t, w=w: F.cross_entropy(x, t, w, reduction=reduction, ignore_index=ignored), x, target, scale=4)
        check(lambda x, t, w=w: forward(x, t, w, number, ignored), x, target, scale=4)
        loss, total = forward(x, target, w, number, ignored)
        check(lambda g, x, t, total, w=w: backward(g, x, t, w, number, ignored, total),
              torch.randn_like(loss), x, target, total)  # fmt: skip


def test_a_class_that_does_not_exist():
    compiled = smelt.compile(lambda x, t: F.cross_entropy(x, t))
    compiled(torch.randn(4, 5), torch.tensor([0, 1, 2, 4]))
    for wrong in (5, -1):
        with pytest.raises((IndexError, RuntimeError)):
            compiled(torch.randn(4, 5), torch.tensor([0, 1, wrong, 4]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_pieces(dtype):
    for x in layouts(5, 6, dtype=dtype):
        check(lambda x: [piece.exp() for piece in (*x.split(2), *x.split([2, 4], 1), *x.unbind(1), *x.chunk(3, -1))], x)
        check(lambda x: [piece.exp() for piece in (x + 1).unsafe_chunk(2, 1)], x)


FOREACH = ["abs", "ceil", "exp", "expm1", "floor", "frac", "log", "log1p", "neg", "reciprocal", "round", "rsqrt",
           "sigmoid", "sign", "sqrt", "tanh", "trunc", "max", "norm"]  # fmt: skip
FOREACH_TWO = ["add", "sub", "mul", "div", "clamp_max", "clamp_min", "maximum", "minimum", "pow"]


@pytest.mark.parametrize("dtype", FLOATS)
def test_lists(dtype):
    a, b, c = ([torch.rand(3, 4).to(dtype) + 0.5, torch.rand(5).to(dtype) + 0.5] for _ in range(3))
    for name in FOREACH:
        fn = getattr(torch, "_foreach_" + name)
        check(lambda x, y, fn=fn: fn([x, y]), *a, scale=3)
    for name in FOREACH_TWO:
        fn = getattr(torch, "_foreach_" + name)
        check(lambda x, y, u, v, fn=fn: fn([x, y], [u, v]), *a, *b, scale=3)
        check(lambda x, y, fn=fn: (fn([x, y], 0.75), fn([x, y], [0.25, 0.75])), *a, scale=3)
    for fn in (torch._foreach_addcmul, torch._foreach_addcdiv):
        check(lambda x, y, u, v, s, t, fn=fn: (fn([x, y], [u, v], [s, t], 0.5), fn([x, y], [u, v], [s, t], [2.0, 3.0])),
              *a, *b, *c, scale=3)  # fmt: skip
    check(lambda x, y, u, v, s, t: (torch._foreach_lerp([x, y], [u, v], [s, t]),
                                    torch._foreach_lerp([x, y], [u, v], 0.3)), *a, *b, *c, scale=3)  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["_fused_adam", "_fused_adamw"])
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam(dtype, name, amsgrad, decay):
    shapes = [(3, 5), (19,)]
    params, grads, moments = ([torch.randn(s).to(dtype) for s in shapes] for _ in range(3))
    seconds, maxima = ([torch.rand(s).to(dtype) for s in shapes] for _ in range(2))
    steps = [torch.tensor(3.0), torch.tensor(7.0)]

    def step(*t):
        lists = [list(t[i : i + 2]) for i in range(0, 12, 2)]
        if not amsgrad:
            lists[4] = []
        return getattr(aten, name)(*lists, lr=0.01, beta1=0.9, beta2=0.98, weight_decay=decay, eps=1e-6,
                                   amsgrad=amsgrad, maximize=amsgrad)  # fmt: skip

    check(step, *params, *grads, *moments, *seconds, *maxima, *steps, scale=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("momentum", "nesterov", "first"), [(0, False, False), (0.9, False, True), (0.9, True, False)])
def test_gradient_descent(dtype, momentum, nesterov, first):
    params, grads, buffers = ([torch.randn(3, 5).to(dtype), torch.randn(19).to(dtype)] for _ in range(3))

    def step(p, q, g, h, m, n):
        return aten._fused_sgd([p, q], [g, h], [m, n] if momentum else [], weight_decay=0.1, momentum=momentum, lr=0.01,
                               dampening=0.0 if nesterov else 0.2, nesterov=nesterov, maximize=False,
                               is_first_step=first)  # fmt: skip

    check(step, *params, *grads, *buffers)
