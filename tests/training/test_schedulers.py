"""Schedulers change numbers that the step before has taken: nothing is compiled again for a number."""

import pytest
import torch
from optimizer_check import Pair
from torch.optim import lr_scheduler, swa_utils

import smelt

# The log is run op by op: what is tested here is what was followed.
OP_BY_OP = {'backend': 'eager'}
STEPS = 9

# With the number of ways through its code that a schedule takes within these steps, besides the first.
SCHEDULES = {
    'StepLR': (lambda o: lr_scheduler.StepLR(o, 2), 1),
    'MultiStepLR': (lambda o: lr_scheduler.MultiStepLR(o, [2, 5]), 2),
    'ConstantLR': (lambda o: lr_scheduler.ConstantLR(o), 1),
    'LinearLR': (lambda o: lr_scheduler.LinearLR(o), 1),
    'ExponentialLR': (lambda o: lr_scheduler.ExponentialLR(o, 0.9), 0),
    'PolynomialLR': (lambda o: lr_scheduler.PolynomialLR(o, 20, 2.0), 0),
    'CosineAnnealingLR': (lambda o: lr_scheduler.CosineAnnealingLR(o, 20), 0),
    'CosineAnnealingWarmRestarts': (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3), 1),
    'LambdaLR': (lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.95**epoch), 0),
    'MultiplicativeLR': (lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.95), 0),
    'OneCycleLR': (lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20), 1),
    'CyclicLR': (lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=3), 1),
    'SequentialLR': (
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [3]
        ),
        2,
    ),
    'ChainedScheduler': (
        lambda o: lr_scheduler.ChainedScheduler(
            [lr_scheduler.PolynomialLR(o, 20), lr_scheduler.ExponentialLR(o, 0.9)]
        ),
        0,
    ),
    'SWALR': (lambda o: swa_utils.SWALR(o, swa_lr=0.05, anneal_epochs=4), 2),
}


def plain_state(scheduler):
    """Without the functions in it, which are each scheduler's own."""
    state = {}
    for key, value in scheduler.state_dict().items():
        values = value if isinstance(value, list) else [value]
        if key == '_schedulers':
            state[key] = [str({k: v for k, v in inner.items() if not callable(v)}) for inner in values]
        elif not any(callable(one) for one in values):
            state[key] = value
    return state


@pytest.mark.parametrize('groups', (1, 2))
@pytest.mark.parametrize('name', SCHEDULES)
def test_a_schedule(name, groups):
    make, ways = SCHEDULES[name]

    def build(model):
        first, *rest = model.parameters()
        parameters = [dict(params=[first, *rest])] if groups == 1 else [dict(params=[first]), dict(params=rest, lr=0.02)]
        optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
        scheduler = make(optimizer)

        def step():
            optimizer.step()
            scheduler.step()
            return scheduler.get_last_lr()

        return step, lambda: (optimizer.state_dict(), plain_state(scheduler))

    pair = Pair(build, **OP_BY_OP).run(STEPS)
    assert pair.breaks() == 0
    # The state of the optimizer is new in the first step, and the rate is known to change from the second on.
    assert pair.recompiles() <= 2 + ways, pair.history


RATED = {cls.__name__: (cls, {}) for cls in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad,
                                           torch.optim.Adadelta, torch.optim.RMSprop, torch.optim.Adamax,
                                           torch.optim.NAdam, torch.optim.ASGD, torch.optim.Rprop)}
RATED |= {f'{name} for each': (cls, dict(foreach=True)) for name, (cls, _) in RATED.items()}
RATED |= {f'{cls.__name__} fused': (cls, dict(fused=True))
          for cls in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)}


@pytest.mark.parametrize('name', RATED)
def test_the_rate_of_every_optimizer(name):
    cls, options = RATED[name]

    def build(model):
        optimizer = cls(model.parameters(), lr=0.01, **options)
        scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 20)

        def step():
            optimizer.step()
            scheduler.step()

        return step, lambda: (optimizer.state_dict(), plain_state(scheduler))

    pair = Pair(build, **OP_BY_OP).run(STEPS)
    assert (pair.breaks(), pair.recompiles(since=3)) == (0, 0), pair.history


def test_a_thousand_steps_under_a_cosine_schedule():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    x, y = torch.randn(8, 4), torch.randint(2, (8,))

    @smelt.compile
    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    losses = [step().item() for _ in range(1000)]
    stats = smelt.stats()
    # The state is made in the first step; from the second on the rate is known to change.
    assert stats['graph_breaks'] == 0 and stats['recompiles'] <= 2
    assert losses[-1] < losses[0] and scheduler.get_last_lr()[0] == pytest.approx(0.0, abs=1e-12)


def test_a_schedule_by_a_metric():
    def build(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)

        def step(metric):
            optimizer.step()
            scheduler.step(metric)

        return step, lambda: (optimizer.state_dict(), scheduler.state_dict())

    pair = Pair(build, **OP_BY_OP)
    for i in range(12):
        pair.step(1.0 / (1 + i % 4))
    assert pair.breaks() == 0
    # Better, worse, so bad that the rate falls, and the rate itself.
    assert pair.recompiles() <= 4


def test_a_rate_that_is_a_tensor():
    def build(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1), foreach=False)
        return optimizer.step, optimizer.state_dict

    Pair(build, **OP_BY_OP).run()
