"""Optimizer steps inside the recorded function."""

import pytest
import torch
from record_check import check, clone, same, same_state, with_grads
from torch import nn

import smelt


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def train_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def warm(model, optimizer):
    """One eager step, so that optimizer state and gradients exist."""
    train_step(model, optimizer, torch.randn(5, 6), torch.randn(5, 3))
    return model, optimizer


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "sgd loop": lambda p: torch.optim.SGD(p, 0.1, foreach=False),
    "sgd foreach": lambda p: torch.optim.SGD(p, 0.1, foreach=True),
    "sgd fused": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
    "momentum loop": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, foreach=False),
    "momentum foreach": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, foreach=True),
    "adam fused": lambda p: torch.optim.Adam(p, 0.01, fused=True),
    "adam fused amsgrad": lambda p: torch.optim.Adam(p, 0.01, amsgrad=True, weight_decay=0.1, fused=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "adagrad fused": lambda p: torch.optim.Adagrad(p, 0.01, fused=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_step(name):
    model = mlp()
    model, optimizer = warm(model, OPTIMIZERS[name](model.parameters()))
    check(train_step, model, optimizer, torch.randn(5, 6), torch.randn(5, 3), runs=4)


@pytest.mark.parametrize("name", ["sgd", "momentum loop", "momentum foreach", "adam fused"])
def test_step_alone(name):
    model = with_grads(mlp())
    optimizer = OPTIMIZERS[name](model.parameters())
    optimizer.step()
    check(lambda model, optimizer: optimizer.step(), model, optimizer, runs=3)


@pytest.mark.parametrize("name", ["adam", "adamw loop", "rmsprop", "adagrad", "adadelta"])
def test_steps_that_read_their_count_are_right_or_refused(name):
    """Their step counter lives in a tensor that Python reads: a wrong bias correction must not come out."""
    make = {
        "adam": lambda p: torch.optim.Adam(p, 0.01, foreach=True),
        "adamw loop": lambda p: torch.optim.AdamW(p, 0.01, foreach=False),
        "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01),
        "adagrad": lambda p: torch.optim.Adagrad(p, 0.01),
        "adadelta": lambda p: torch.optim.Adadelta(p, 0.01),
    }[name]
    model = mlp()
    model, optimizer = warm(model, make(model.parameters()))
    try:
        check(train_step, model, optimizer, torch.randn(5, 6), torch.randn(5, 3), runs=4)
    except smelt.RecordError as error:
        assert "_local_scalar_dense" in str(error)


def test_learning_rate_in_a_tensor_is_read():
    model = mlp()
    model, optimizer = warm(model, torch.optim.SGD(model.parameters(), torch.tensor(0.1), foreach=False))
    with pytest.raises(smelt.RecordError, match="depends on tensor contents"):
        smelt.record(train_step, model, optimizer, torch.randn(5, 6), torch.randn(5, 3))


@pytest.mark.parametrize("foreach", [True, False])
def test_clipped_gradients(foreach):
    def fn(model, optimizer, x, y):
        optimizer.zero_grad()
        (model(x) - y).pow(2).sum().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=foreach)
        nn.utils.clip_grad_value_(model.parameters(), 0.3, foreach=foreach)
        optimizer.step()
        return norm

    model = mlp()
    model, optimizer = warm(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))
    check(fn, model, optimizer, torch.randn(5, 6), torch.randn(5, 3), runs=3)


def test_update_by_hand():
    def fn(model, x):
        grads = torch.autograd.grad(model(x).pow(2).sum(), list(model.parameters()))
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads):
                p.sub_(g, alpha=0.1)
                p.data.mul_(0.99)
        return [g.norm() for g in grads]

    check(fn, mlp(), torch.randn(5, 6), runs=3)


def test_two_steps_in_one_region():
    def fn(model, optimizer, x, y):
        return train_step(model, optimizer, x, y), train_step(model, optimizer, x * 2, y)

    model = mlp()
    model, optimizer = warm(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))
    check(fn, model, optimizer, torch.randn(5, 6), torch.randn(5, 3))


def test_gradient_accumulation_over_two_batches():
    def fn(model, optimizer, a, b):
        optimizer.zero_grad(set_to_none=False)
        model(a).sum().backward()
        model(b).pow(2).sum().backward()
        optimizer.step()

    model = mlp()
    model, optimizer = warm(model, torch.optim.SGD(model.parameters(), 0.1))
    check(fn, model, optimizer, torch.randn(5, 6), torch.randn(3, 6))


def test_moving_average_of_weights():
    def fn(model, average, x):
        with torch.no_grad():
            for a, p in zip(average.parameters(), model.parameters()):
                a.lerp_(p, 0.1)
            torch._foreach_mul_(list(average.parameters()), 0.5)
        return average(x)

    check(fn, mlp(), mlp(), torch.randn(2, 6))


def test_record_leaves_model_and_optimizer_alone():
    model = mlp()
    model, optimizer = warm(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))
    x, y = torch.randn(5, 6), torch.randn(5, 3)
    before = clone((model, optimizer))
    objects = [id(p) for p in model.parameters()], [id(p.grad) for p in model.parameters()]
    smelt.record(train_step, model, optimizer, x, y)
    same_state((model, optimizer), before)
    assert objects == ([id(p) for p in model.parameters()], [id(p.grad) for p in model.parameters()])
    same(train_step(model, optimizer, x, y), train_step(*before, x, y))
    same_state((model, optimizer), before)


def test_state_made_inside_is_not_lost():
    """The momentum buffers are made in the first step: recorded there, they would be lost. Right, or a refusal."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    with pytest.raises(smelt.Error):
        graph = smelt.record(train_step, model, optimizer, torch.randn(5, 6), torch.randn(5, 3))
        optimizer.step()
        graph.run(model, optimizer, torch.randn(5, 6), torch.randn(5, 3))
