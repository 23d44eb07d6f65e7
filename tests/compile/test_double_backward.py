"""Gradients of gradients through a compiled model. Its forward would be computed once compiled and once op by op, so where
that is usual it is run op by op from the start."""

import pytest
import torch
from torch import nn

import smelt

from generated import HAS_KERNELS


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))


def penalty(model, x):
    gradient, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return ((gradient.norm(2, dim=-1) - 1) ** 2).mean()


def plain(model, x):
    return model(x).pow(2).mean()


def gradients(module, model, loss):
    module.zero_grad()
    loss(model, torch.linspace(-1, 1, 12).view(3, 4).requires_grad_()).backward()
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


@pytest.mark.parametrize('losses', [[penalty], [penalty, plain], [plain] * 15 + [penalty], [plain]],
                         ids=['always', 'half', 'rarely', 'never'])
def test_gradients(losses):
    one, other = net(), net()
    compiled = smelt.compile(other)
    for i in range(20):
        loss = losses[i % len(losses)]
        for found, wanted in zip(gradients(other, compiled, loss), gradients(one, one, loss), strict=True):
            torch.testing.assert_close(found, wanted)


@pytest.mark.skipif(not HAS_KERNELS, reason='the ops of the log are run anyway')
@pytest.mark.parametrize('losses, stays', [([penalty], False), ([plain] * 15 + [penalty], True)],
                         ids=['always', 'rarely'])
def test_the_forward_is_computed_once(losses, stays):
    module = net()
    compiled = smelt.compile(module)
    for i in range(40):
        gradients(module, compiled, losses[i % len(losses)])
    assert (compiled(torch.ones(3, 4, requires_grad=True)).grad_fn.name() == 'SmeltBackward') == stays


@pytest.mark.parametrize('dynamic', [None, True])
@pytest.mark.parametrize('function', [
    lambda x, k: (x.pow(3) * x.shape[0]).sum(),
    lambda x, k: (x.sin() * k / x.numel()).sum() * x.shape[0],
    lambda x, k: x[: x.shape[0] // 2].exp().mean(0) * k,
], ids=range(3))
def test_sizes_and_numbers_are_those_of_the_run(function, dynamic):
    compiled = smelt.compile(function, dynamic=dynamic, options={'rollback': False})
    for n, k in ((3, 2.0), (4, 3.0), (5, 0.5), (7, 2.5), (5, 4.0)):
        x = torch.randn(n, 2, requires_grad=True)

        def both(called):
            first, = torch.autograd.grad(called(x, k).sum(), x, create_graph=True)
            second, = torch.autograd.grad((first * first).sum(), x)
            return first, second

        torch.testing.assert_close(both(compiled), both(function), rtol=1e-4, atol=1e-5)
