"""Custom autograd functions among ops whose sizes vary: they are followed, and called again by each run."""
import copy

import pytest
import torch
from torch import nn

import smelt

STAYS = {'rollback': False}
BACKENDS = ('eager', 'native')


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bound):
        ctx.save_for_backward(x)
        ctx.bound = bound
        return x.clamp(-bound, bound)

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return grad * (x.abs() <= ctx.bound) + 0.1, None


class Joined(torch.autograd.Function):
    """Its results have other sizes than its arguments, and it asks for them."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.rows = x.shape[0]
        joined = torch.cat([x, y])
        return joined, joined.view(joined.shape[0] * 2, -1).sum(1), x.t() * x.shape[0]

    @staticmethod
    def backward(ctx, joined, summed, turned):
        joined = joined + summed.view(-1, 2).sum(1, keepdim=True)
        return joined[:ctx.rows] + turned.t() * ctx.rows, joined[ctx.rows:]


class Signs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        return grad


def clipped(x, w):
    y = Clipped.apply(x @ w, 0.5)
    return y.sum(0) * y.shape[0] + y.view(y.shape[0] * 2, -1).mean()


def joined(x, w):
    y, sums, turned = Joined.apply(x @ w, x)
    return y.view(y.shape[0] // 2, 2, -1).softmax(1), sums / sums.shape[0], turned.contiguous().view(-1)


def between(x, w):
    y = Signs.apply((x @ w).relu() - 0.2)
    z = Clipped.apply(y * 2 + torch.arange(y.shape[0])[:, None], 3.0)
    return (z @ w)[: z.shape[0] // 2 + 1].sum(1)


def gradients(function, x, w):
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    results = function(x, w)
    results = results if isinstance(results, tuple) else (results,)
    sum((r * r).mean() for r in results).backward()
    return [r.detach() for r in results] + [x.grad, w.grad]


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('function', [clipped, joined, between], ids=lambda f: f.__name__)
def test_two_programs_are_for_all_sizes(function, backend):
    smelt.reset()
    compiled = smelt.compile(function, options=STAYS, backend=backend)
    w = torch.randn(8, 8)
    for n in (4, 7, 9, 31, 5, 64, 3):
        x = torch.randn(n, 8)
        torch.testing.assert_close(gradients(compiled, x, w), gradients(function, x, w), rtol=1e-3, atol=1e-4)
    assert smelt.stats()['segments'] <= 2, smelt.explain(compiled)(x, w).recompiles


@pytest.mark.parametrize('function', [clipped, joined, between], ids=lambda f: f.__name__)
def test_a_step_that_has_them(function):
    """Here they are ops among others; the sizes of what its backward makes are not known yet, and are fixed."""
    smelt.reset()
    compiled = smelt.compile(lambda x, w: gradients(function, x, w), options=STAYS)
    w = torch.randn(8, 8)
    for n in (4, 7, 9, 31, 5, 64, 3):
        x = torch.randn(n, 8)
        torch.testing.assert_close(compiled(x, w), gradients(function, x, w), rtol=1e-3, atol=1e-4)
    assert smelt.stats()['segments'] <= 8


def test_what_a_forward_asks_is_a_guard():
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.many = x.shape[0] > 6
            return x[: x.shape[0] // 2] * 2 if ctx.many else x + 1

        @staticmethod
        def backward(ctx, grad):
            return torch.cat([grad * 2, torch.zeros_like(grad), grad.new_zeros(1, grad.shape[1])])[:len(grad) * 2] if ctx.many else grad

    def function(x, w):
        y = Halved.apply(x @ w)
        return y.sum(0) * y.shape[0]

    smelt.reset()
    compiled = smelt.compile(function, options=STAYS)
    w = torch.randn(8, 8)
    for n in (4, 8, 10, 32, 6, 64, 2, 12):
        x = torch.randn(n, 8)
        torch.testing.assert_close(gradients(compiled, x, w), gradients(function, x, w), rtol=1e-3, atol=1e-4)
    assert smelt.stats()['segments'] <= 4


def test_a_model_in_training():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

        def forward(self, x):
            return self.second(Clipped.apply(self.first(x), 1.0)) * x.shape[0]

    model = Net()
    twin = copy.deepcopy(model)
    smelt.reset()
    compiled = smelt.compile(twin, options=STAYS)
    for n in (8, 8, 5, 3, 12):
        x = torch.randn(n, 8)
        for used, owner in ((model, model), (compiled, twin)):
            owner.zero_grad()
            used(x).square().mean().backward()
        for p, q in zip(model.parameters(), twin.parameters()):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-3, atol=1e-4)
    assert smelt.stats()['segments'] <= 2
