"""Tensors are followed from a function's first line on, however it holds them: code such as p.grad = None passes no
dispatcher, so it must find the twin already."""
import types

import pytest
import torch

import smelt


class Trainer:
    """No module and no dataclass, just an object that holds things."""

    def __init__(self):
        self.parts = {'model': torch.nn.Linear(3, 2)}
        self.myself = self

    @property
    def model(self):
        return self.parts['model']

    def step(self, x):
        self.model.zero_grad()
        self.model(x).sum().backward()


GLOBAL = Trainer()


def global_step(x):
    GLOBAL.step(x)


def inner_step(x):
    def step():
        GLOBAL.step(x)

    step()


def by_closure():
    holder = types.SimpleNamespace(trainer=Trainer())
    return holder.trainer, lambda x: holder.trainer.step(x)


def by_method():
    trainer = Trainer()
    return trainer, trainer.step


@pytest.mark.parametrize('make', [by_method, by_closure, lambda: (GLOBAL, global_step), lambda: (GLOBAL, inner_step)],
                         ids=['method', 'closure', 'global', 'inner function'])
def test_gradients_are_followed(make):
    trainer, step = make()
    x = torch.randn(4, 3)
    step(x)
    weight = trainer.model.weight
    before = weight.grad
    graph = smelt.record(step, x)
    assert weight.grad is before  # zero_grad() in the recording did not reach the real one
    graph.run(x)
    graph.run(x)
    assert torch.equal(weight.grad, x.sum(0).expand(2, 3))


def test_an_object_that_refers_to_many_others():
    chain = None
    for _ in range(100_000):
        chain = [chain]
    assert len(smelt.record(lambda x: (x + 1, len(chain)), torch.ones(2))) == 1
