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
