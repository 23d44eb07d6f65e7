"""Custom autograd functions are called as they are, and what stands before and behind them is compiled."""

import copy

import pytest
import torch

import smelt

from generated import HAS_KERNELS


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() < ctx.limit, grad, grad * 0.5), None


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x):
        hidden = torch.nn.functional.gelu(self.first(self.norm(x)))
        hidden = Clipped.apply(hidden, 0.5)
        return self.norm(self.second(hidden).tanh() + x).sin()


class Twice(Layer):
    def forward(self, x):
        return super().forward(super().forward(x)) * 2


class WithWrites(Layer):
    """What is changed in place behind the call was used before it."""

    def forward(self, x):
        scale = torch.zeros(16)
        hidden = self.first(self.norm(x)) * (scale + 1).exp()
        hidden = Clipped.apply(hidden, 0.5)
        scale.add_(2)
        return self.second(hidden * scale).sin().tanh() + x


@pytest.mark.parametrize('kind', [Layer, Twice, WithWrites])
def test_training(kind):
    model = kind()
    reference = copy.deepcopy(model)
    compiled = smelt.compile(model, fullgraph=True)
    for _ in range(4):
        x = torch.randn(4, 8)
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        compiled(ours).square().sum().backward()
        reference(theirs).square().sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)
        for mine, other in zip(model.parameters(), reference.parameters()):
            torch.testing.assert_close(mine.grad, other.grad)
    assert smelt.stats()['segments'] == 1


@pytest.mark.skipif(not HAS_KERNELS, reason='stages are made for kernels')
def test_stages():
    model = Layer()
    report = smelt.explain(model)(torch.randn(4, 8))
    assert 'stage 3 of 3' in report.segments[0].graph


def test_second_derivatives():
    model = Layer()
    reference = copy.deepcopy(model)
    compiled = smelt.compile(model)
    for _ in range(3):
        x = torch.randn(4, 8)
        results = []
        for run, of in ((compiled, model), (reference, reference)):
            (grad,) = torch.autograd.grad(run(x).square().sum(), of.second.weight, create_graph=True)
            results.append(torch.autograd.grad(grad.square().sum(), of.first.weight)[0])
        torch.testing.assert_close(*results)
