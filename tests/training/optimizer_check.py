"""Two models that are trained alike, one of them with compiled code."""

import functools

import torch
from torch import nn

import smelt

STEPS = 6


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def set_grads(*models, without=()):
    """New gradients, the same ones for all models."""
    for i, parameters in enumerate(zip(*(model.parameters() for model in models), strict=True)):
        grad = torch.randn(parameters[0].shape)
        for parameter in parameters:
            parameter.grad = None if i in without else grad.clone()


def plain(value):
    """What can be compared with ==."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.flatten().tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(item) for item in value)
    return value


def numbers(value):
    """All tensors and numbers in it, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [one for item in value for one in numbers(item)]
    return [value] if isinstance(value, (torch.Tensor, int, float)) else []


def counters():
    stats = smelt.stats()
    return stats['graph_breaks'], stats['recompiles']


class Pair:
    """`build(model)` gives the function to run and one that tells its state. `near`: how near results
    of fused kernels have to come; without, they are equal. `history`: breaks and recompiles of each step."""

    def __init__(self, build, near=None, **options):
        self.near = near
        self.model, self.eager_model = make_model(), make_model()
        function, self.state = build(self.model)
        self.eager, self.eager_state = build(self.eager_model)
        self.compiled = smelt.compile(function, **options)
        self.history = []

    def step(self, *arguments, without=()):
        set_grads(self.model, self.eager_model, without=without)
        before = counters()
        result = self.compiled(*arguments)
        self.history.append(tuple(now - then for now, then in zip(counters(), before, strict=True)))
        assert plain(result) == plain(self.eager(*arguments))
        self.check()

    def check(self):
        if self.near:
            close = functools.partial(torch.testing.assert_close, rtol=self.near, atol=self.near)
            close(list(self.model.parameters()), list(self.eager_model.parameters()))
            close(numbers(self.state()), numbers(self.eager_state()))
            return
        for mine, theirs in zip(self.model.parameters(), self.eager_model.parameters(), strict=True):
            assert torch.equal(mine, theirs)
            assert plain(mine.grad) == plain(theirs.grad)
        assert plain(self.state()) == plain(self.eager_state())

    def run(self, steps=STEPS):
        for _ in range(steps):
            self.step()
        return self

    def breaks(self):
        return sum(breaks for breaks, _ in self.history)

    def recompiles(self, since=0):
        return sum(recompiles for _, recompiles in self.history[since:])
