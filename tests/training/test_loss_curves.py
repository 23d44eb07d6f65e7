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


@pytest.mark.filterwarnings("error::RuntimeWarning")  # nothing is given up
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


# About one unit in the last place of what autocast computes in.
PRECISIONS = {torch.bfloat16: 1e-2, torch.float16: 1e-3}


def mixed(make, dtype):
    class Mixed(make):
        def step(self, *batch):
            self.optimizer.zero_grad()
            with torch.autocast("cpu", dtype):
                loss = self.loss(*batch)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            return loss.detach()

        def make(self):
            super().make()
            self.scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
    return Mixed


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("make", (tasks.Mlp, tasks.ResNet18, tasks.LanguageModel, tasks.Vit, tasks.Segmentation),
                         ids=lambda make: make.__name__)
def test_loss_curve_in_mixed_precision(make, dtype, form):
    make = mixed(make, dtype)
    expected = losses(make, plain, plain)
    compiled = losses(make, smelt.compile, plain) if form == "model" else losses(make, plain, smelt.compile)
    assert compiled == pytest.approx(expected, rel=PRECISIONS[dtype])
    assert smelt.stats()["graph_breaks"] == 0
