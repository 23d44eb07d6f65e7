"""Whole trainings: the loss of every step is eager's, with the same seeds."""

import pytest
import tasks
import torch

import smelt

# (a) models are compiled and the loop is the user's; (b) the whole step is one compiled function.
FORMS = ("model", "step")


def plain(function):
    return function


def losses(make, compile, compile_step):
    torch.manual_seed(0)
    task = make(compile)
    step = compile_step(task.step)
    curve = []
    for i in range(task.steps):
        torch.manual_seed(i)
        curve.append(step(*task.batch()).item())
    return curve


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("make", tasks.ALL, ids=lambda make: make.__name__)
def test_loss_curve(make, form):
    expected = losses(make, plain, plain)
    compiled = losses(make, smelt.compile, plain) if form == "model" else losses(make, plain, smelt.compile)
    assert compiled == pytest.approx(expected, rel=1e-4)
    assert expected[0] != expected[-1]


def test_a_step_in_pieces(monkeypatch):
    """A pass goes on in the graph of a program that ended at a break."""
    monkeypatch.setattr(torch.optim.SGD, "step", smelt.disable(torch.optim.SGD.step))
    expected = losses(tasks.Gan, plain, plain)
    assert losses(tasks.Gan, plain, smelt.compile) == pytest.approx(expected, rel=1e-4)
