"""Calls on the autograd graph inside of compiled functions: custom functions, torch.autograd.grad, requires_grad_(),
hooks, backward(). Values and gradients are eager's; where the call can be made again it is part of the graph."""

import pytest
import torch

from rounding import equal_or_near

import smelt


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by):
        ctx.save_for_backward(x)
        ctx.by = by
        parts = []
        parts.append(x * by)
        return parts[0]

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.by * 2 + x, None


class Pair(torch.autograd.Function):
    """With setup_context(); its gradient is not the right one, so that one sees whose it is."""

    @staticmethod
    def forward(x, w):
        return x @ w, x + 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable()

    @staticmethod
    def backward(ctx, first, second):
        x, w = ctx.saved_tensors
        return first @ w.T * 3 + second, x.T @ first


class Twice(torch.autograd.Function):
    """One that applies another one."""

    @staticmethod
    def forward(ctx, x):
        return Scale.apply(x, 2) + 1

    @staticmethod
    def backward(ctx, grad):
        return grad * 7


FACTOR = {'n': 2.0}


class ReadsGlobal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * FACTOR['n']

    @staticmethod
    def backward(ctx, grad):
        return grad * 5


SEEN = []


class Counts(torch.autograd.Function):
    """Changes something that outlives the call."""

    @staticmethod
    def forward(ctx, x):
        SEEN.append(len(SEEN))
        return x * len(SEEN)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def custom(x, w):
    y = Scale.apply(x.sin(), 3)
    first, second = Pair.apply(y, w)
    return (first * 2).cos() + second.sum()


def nested(x, w):
    return Twice.apply(x @ w).sin()


def reads_global(x, w):
    return ReadsGlobal.apply(x @ w) + 1


def counts(x, w):
    y = Counts.apply(x @ w)
    return y + len(SEEN)


def dirty(x, w):
    y = Dirty.apply(x @ w)
    return y * 2


def penalty(x, w):
    y = (x @ w).sin()
    (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y + grad.pow(2)


def grad_of_a_custom_function(x, w):
    y = Scale.apply(x @ w, 2)
    (grad,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    return y + grad


def leaf_inside(x, w):
    y = (x @ w).detach()
    y.requires_grad_()
    z = y.cos()
    (grad,) = torch.autograd.grad(z.sum(), y)
    return grad * 2 + x


def leaf_by_attribute(x, w):
    y = (x @ w).detach()[:, None]
    y.requires_grad = True
    z = y.cos()
    (grad,) = torch.autograd.grad(z.sum(), y)
    return grad[:, 0] * 2 + x


def hook(x, w):
    y = x @ w
    y.register_hook(lambda grad: grad * 5)
    return y.sin()


def hook_with_closure(x, w):
    y, n = x @ w, x.shape[0]
    y.register_hook(lambda grad: grad * n)
    return y.sin()


def backward_inside(x, w):
    y = (x @ w).sin()
    y.sum().backward(retain_graph=True)
    return y * w.grad.sum()


# function, breaks when gradients are needed, breaks when they are not
PROGRAMS = [(custom, 0, 0), (nested, 0, 0), (reads_global, 0, 0), (counts, 1, None), (dirty, 1, None), (penalty, 0, None),
            (grad_of_a_custom_function, 0, None), (leaf_inside, 0, 0),
            (leaf_by_attribute, 0, 0), (hook, 0, None), (hook_with_closure, 1, None),
            (backward_inside, 0, None)]


def run(fn, grads, calls=3):
    SEEN.clear()
    seen = []
    for call in range(calls):
        x = (torch.arange(6.).reshape(2, 3) / (call + 7)).requires_grad_(grads)
        w = (torch.arange(9.).reshape(3, 3) / 5).requires_grad_(grads)
        out = fn(x, w)
        if grads:
            out.sum().backward()
        seen += [out.detach().clone(), x.grad, w.grad, out.requires_grad, len(SEEN)]
    return seen


def same(found, expected, backend='native'):
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert equal_or_near(one, other, backend) if isinstance(one, torch.Tensor) else one == other


@pytest.mark.parametrize('backend', ['native', 'eager'])
@pytest.mark.parametrize('fn, breaks', [(fn, breaks) for fn, breaks, _ in PROGRAMS])
def test_with_gradients(fn, breaks, backend):
    compiled = smelt.compile(fn, backend=backend)
    same(run(compiled, True), run(fn, True), backend)
    assert smelt.stats()['graph_breaks'] == breaks
    assert smelt.stats()['cache_hits'] >= 2 and (fn is counts or smelt.stats()['recompiles'] == 0)


@pytest.mark.parametrize('backend', ['native', 'eager'])
@pytest.mark.parametrize('fn, breaks', [(fn, breaks) for fn, _, breaks in PROGRAMS if breaks is not None])
def test_without_gradients(fn, breaks, backend):
    compiled = smelt.compile(fn, backend=backend)
    same(run(compiled, False), run(fn, False), backend)
    assert smelt.stats()['graph_breaks'] == breaks
    assert smelt.stats()['recompiles'] == 0


def test_what_forward_reads_is_guarded():
    compiled = smelt.compile(reads_global, fullgraph=True)
    try:
        for FACTOR['n'] in (2.0, 3.0, 2.0):
            same(run(compiled, True), run(reads_global, True))
    finally:
        FACTOR['n'] = 2.0


def test_behind_a_change_that_forward_could_see():
    def fn(x, w):
        FACTOR['n'] = FACTOR['n'] + 1
        return ReadsGlobal.apply(x @ w)
    try:
        FACTOR['n'] = 2.0
        expected = run(fn, True)
        FACTOR['n'] = 2.0
        same(run(smelt.compile(fn), True), expected)
    finally:
        FACTOR['n'] = 2.0


def test_arguments_that_change():
    def fn(x, by):
        return Scale.apply(x, by) + 1
    compiled = smelt.compile(fn)
    for by in (2, 3, 2, 4.5):
        x = torch.ones(3, requires_grad=True)
        y = torch.ones(3, requires_grad=True)
        out = compiled(x, by)
        out.sum().backward()
        fn(y, by).sum().backward()
        assert torch.equal(x.grad, y.grad)


def test_an_error_in_forward():
    class Picky(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, index):
            return x[index]

        @staticmethod
        def backward(ctx, grad):
            return None, None

    def fn(x, index):
        return Picky.apply(x * 2, index) + 1
    compiled = smelt.compile(fn)
    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        assert torch.equal(compiled(x, torch.tensor([0, 2])), fn(x, torch.tensor([0, 2])))
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([0, 7]))
    assert torch.equal(compiled(x, torch.tensor([1, 1])), fn(x, torch.tensor([1, 1])))


def by_attribute(x):
    x.requires_grad = True
    return (x * 2).sum()


@pytest.mark.parametrize('fn', (lambda x: (x.requires_grad_() * 2).sum(), by_attribute))
def test_requires_grad_of_an_argument(fn):
    compiled = smelt.compile(fn, fullgraph=True)
    for _ in range(3):
        x = torch.ones(3)
        compiled(x).backward()
        assert x.requires_grad and torch.equal(x.grad, torch.full((3,), 2.0))
    with pytest.raises(RuntimeError, match='floating point'):
        compiled(torch.ones(3, dtype=torch.int64))


def test_a_training_step_is_not_broken_at_its_backward_pass():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        loss = model(x).pow(2).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss * 2
    start = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(5, 4)
    expected = [step(x) for _ in range(4)] + [model.weight.clone()]
    model.load_state_dict(start)
    smelt.reset()
    compiled = smelt.compile(step)
    found = [compiled(x) for _ in range(4)] + [model.weight.clone()]
    assert all(torch.allclose(a, b) for a, b in zip(found, expected))
    reasons = [at.reason for at in smelt.explain(compiled)(x).breaks]
    assert 'backward' not in reasons


# -- what takes part in autograd, and what does not


def _made(x):
    return (x.detach() * 3).requires_grad_()


def _cloned(x):
    return x.detach().clone().requires_grad_()


def _of_zeros(x):
    return torch.zeros(x.shape).requires_grad_()


def _without_gradients(x):
    with torch.no_grad():
        made = x * 2
    return made.requires_grad_()


def _attribute(x):
    made = x.detach().exp()
    made.requires_grad = True
    return made


def _parameter(x):
    return torch.nn.Parameter(x.detach() * 2)


def state(tensor):
    return tensor.requires_grad, tensor.is_leaf, tensor.grad_fn is None


@pytest.mark.parametrize("backend", ("native", "eager"))
@pytest.mark.parametrize("make", (_made, _cloned, _of_zeros, _without_gradients, _attribute, _parameter))
def test_a_leaf_that_is_returned_beside_what_is_computed_of_it(make, backend):
    def f(x):
        leaf = make(x)
        return leaf, (leaf * x).sin(), x * 2

    def use(function, x):
        x = x.clone().requires_grad_()
        results = function(x)
        sum((n + 1) * result.sum() for n, result in enumerate(results)).backward()
        return [state(t) for t in results], [x.grad, results[0].grad, *results]

    compiled = smelt.compile(f, backend=backend)
    for n in range(3):
        x = torch.linspace(-1, n + 1, 6).view(2, 3)
        mine, theirs = use(compiled, x), use(f, x)
        assert mine[0] == theirs[0]
        torch.testing.assert_close(mine[1], theirs[1])


def _detached(x):
    x.detach_()
    return x * 2, x.contiguous()


def _detached_and_changed(x):
    x.detach_()
    x.add_(1)
    return (x,)


def _detached_later(x):
    y = x * 3
    x.detach_()
    return y, x + 1


@pytest.mark.parametrize("backend", ("native", "eager"))
@pytest.mark.parametrize("is_leaf", (True, False))
@pytest.mark.parametrize("f", (_detached, _detached_and_changed, _detached_later))
def test_a_tensor_of_the_caller_that_is_detached(f, is_leaf, backend):
    compiled = smelt.compile(f, backend=backend)
    for tracked in (True, True, False, True):
        seen = []
        for function in (f, compiled):
            base = torch.ones(2, 3, requires_grad=tracked)
            x = base if is_leaf else base * 2
            results = function(x)
            if results[0].requires_grad:
                results[0].sum().backward()
            seen.append(([state(t) for t in (x, *results)], [base.grad, x.detach(), *results]))
        assert seen[0][0] == seen[1][0]
        for one, other in zip(seen[0][1], seen[1][1], strict=True):
            assert (one is None) == (other is None) and (one is None or torch.equal(one, other))


CONVERSIONS = {
    "memory format": lambda x: x.to(memory_format=torch.channels_last),
    "dtype and format": lambda x: x.to(dtype=torch.float64, memory_format=torch.channels_last),
    "dtype": lambda x: x.to(torch.float64),
    "copy": lambda x: x.to(torch.float32, copy=True),
    "op": lambda x: torch.ops.aten._to_copy(x, dtype=torch.float64),
    "random": lambda x: torch.randint_like(x, 5) + x,
    "random alone": lambda x: torch.randint_like(x, 2, 5),
    "places": lambda x: torch.linspace(x.flatten()[0], x.flatten()[1], 3),
    "powers": lambda x: torch.logspace(x.flatten()[0], 2.0, 3),
    "like": lambda x: torch.full_like(x, 2) * x,
}


@pytest.mark.parametrize("backend", ("native", "eager"))
@pytest.mark.parametrize("name", CONVERSIONS)
def test_what_has_a_gradient(name, backend):
    f = CONVERSIONS[name]
    compiled = smelt.compile(f, backend=backend)
    for n in range(3):
        seen = []
        for function in (f, compiled):
            torch.manual_seed(n)
            x = torch.linspace(1, 2 + n, 16).view(1, 2, 2, 4).requires_grad_()
            y = function(x)
            if y.requires_grad:
                y.sum().backward()
            seen.append(((state(y), y.stride(), y.dtype), y.detach(), x.grad))
        assert seen[0][0] == seen[1][0]
        torch.testing.assert_close(seen[0][1], seen[1][1])
        assert (seen[0][2] is None) == (seen[1][2] is None)
        if seen[0][2] is not None:
            torch.testing.assert_close(seen[0][2], seen[1][2])


@pytest.mark.parametrize("backend", ("native", "interpret", "eager"))
@pytest.mark.parametrize("align", (True, False))
def test_autocast_inside_of_a_kernel_of_pytorch(align, backend):
    def f(theta, size):
        return torch.nn.functional.affine_grid(theta, size, align_corners=align)

    compiled = smelt.compile(f, backend=backend)
    theta = torch.tensor([[[1.0, 0.3, 0.1], [0.2, 0.9, -0.3]]]).expand(2, 2, 3)
    for dtype in (torch.bfloat16, torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            grid, expected = compiled(theta, (2, 3, 4, 5)), f(theta, (2, 3, 4, 5))
        assert grid.dtype == expected.dtype == dtype
        torch.testing.assert_close(grid, expected)
    assert compiled(theta, (2, 3, 4, 5)).dtype == torch.float32


@pytest.mark.parametrize("change", (lambda y: y.unsqueeze_(0), lambda y: y.t_(), lambda y: y.squeeze_(), lambda y: y.transpose_(0, 1)))
def test_a_result_that_gets_other_sizes_in_place(change):
    def f(x):
        y = x * 2
        change(y)
        return y, (y + 1).sin()

    compiled = smelt.compile(f)
    for rows, columns in ((4, 5), (4, 5), (6, 5), (6, 1), (7, 5), (1, 5), (7, 3)):
        seen = []
        for function in (f, compiled):
            x = torch.linspace(0, 1, rows * columns).view(rows, columns).requires_grad_()
            one, other = function(x)
            (one.sum() + other.square().sum()).backward()
            seen.append([one, other, x.grad])
        for a, b in zip(*seen, strict=True):
            assert a.stride() == b.stride()
            torch.testing.assert_close(a, b)
