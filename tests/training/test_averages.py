"""Averages of parameters beside a model: an own class, torch's AveragedModel; compiled alone or inside a step."""
import generated
import pytest
import torch
from test_step import assert_same, batch, make_model
from torch.nn import functional as F
from torch.optim import swa_utils

import smelt


class Average:
    def __init__(self, model, decay=0.9):
        self.model, self.decay, self.updates = model, decay, 0
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    def tensors(self):
        return list(self.shadow.values())


class Lerp(Average):
    @torch.no_grad()
    def update(self):
        for name, p in self.model.named_parameters():
            self.shadow[name].lerp_(p, 1 - self.decay)


class MulAdd(Average):
    @torch.no_grad()
    def update(self):
        for name, p in self.model.named_parameters():
            self.shadow[name].mul_(self.decay).add_(p, alpha=1 - self.decay)


class WarmedUp(Average):
    @torch.no_grad()
    def update(self):
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, p in self.model.named_parameters():
            self.shadow[name].copy_(decay * self.shadow[name] + (1 - decay) * p)


class OfTorch:
    arguments = {}

    def __init__(self, model):
        self.model, self.average = model, swa_utils.AveragedModel(model, **self.arguments)

    def update(self):
        self.average.update_parameters(self.model)

    def tensors(self):
        return list(self.average.state_dict().values())


class Exponential(OfTorch):
    arguments = dict(multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))


class OneByOne(OfTorch):
    arguments = dict(avg_fn=swa_utils.get_ema_avg_fn(0.9))


CLASSES = pytest.mark.parametrize('cls', [Lerp, MulAdd, WarmedUp, OfTorch, Exponential, OneByOne])


def make_run(cls, alone, compiled):
    model = make_model()
    optimizer, average = torch.optim.Adam(model.parameters(), lr=0.01), cls(model)

    def train(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def step(x, y):
        loss = train(x, y)
        average.update()
        return loss
    if not compiled:
        return step, None, model, average
    if not alone:
        step = smelt.compile(step)
        return step, lambda: smelt.explain(step)(*batch(0)), model, average
    update = smelt.compile(average.update)

    def both(x, y):
        loss = train(x, y)
        update()
        return loss
    return both, lambda: smelt.explain(update)(), model, average


@CLASSES
@pytest.mark.parametrize('alone', [True, False])
def test_an_average(cls, alone):
    expected_step, _, plain, wanted = make_run(cls, alone, False)
    step, explain, model, average = make_run(cls, alone, True)
    for i in range(7):
        torch.testing.assert_close(step(*batch(i)), expected_step(*batch(i)))
        assert_same(average.tensors(), wanted.tensors())
        assert_same(list(model.parameters()), list(plain.parameters()))
    report = explain()
    assert report.break_count == 0, str(report)
    assert len(report.recompiles) <= 1, str(report)


def test_a_flag_that_changes_all_the_time_is_a_branch():
    flag, total = torch.zeros(()), torch.zeros(3)

    @torch.no_grad()
    def update(x):
        if flag > 0:
            total.add_(x)
        else:
            total.sub_(x)
        return total.clone()
    compiled, expected = smelt.compile(update), torch.zeros(3)
    for i in range(60):
        flag.fill_(i % 2)
        x = torch.full((3,), float(i))
        expected = expected + x if i % 2 else expected - x
        torch.testing.assert_close(compiled(x), expected)
    report = smelt.explain(compiled)(torch.ones(3))
    assert report.break_count >= 1
    assert len(report.recompiles) < 8


@pytest.mark.skipif(not generated.HAS_KERNELS, reason='built without LLVM')
def test_a_flag_in_front_of_a_model_in_training():
    """A guess would leave all of it to the log, so that there are two graphs."""
    class Flagged(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first = torch.nn.Linear(4, 4)
            self.register_buffer('ready', torch.ones(()))

        def forward(self, x):
            if self.ready > 0:
                return self.first(x).relu() * 2
            return x
    plain, model = Flagged(), Flagged()
    compiled = smelt.compile(model)
    for _ in range(5):
        x = torch.randn(3, 4)
        torch.testing.assert_close(compiled(x), plain(x))
    report = smelt.explain(compiled)(torch.randn(3, 4))
    assert not any(segment.graph.startswith('# op by op') for segment in report.segments), str(report)
