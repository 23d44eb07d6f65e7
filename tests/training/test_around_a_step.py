"""What stands around an optimizer's step: clipping of gradients, loss scaling, averages of models."""

import generated
import pytest
import torch
from optimizer_check import Pair
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import swa_utils

import smelt

OP_BY_OP = {'backend': 'eager'}


@pytest.mark.parametrize('foreach', (None, True, False))
@pytest.mark.parametrize('norm_type', (2.0, 1.0, float('inf')))
def test_gradients_clipped_by_norm(norm_type, foreach):
    def build(model):
        return lambda: clip_grad_norm_(model.parameters(), 0.1, norm_type, foreach=foreach), dict

    pair = Pair(build, **OP_BY_OP).run(4)
    assert (pair.breaks(), pair.recompiles()) == (0, 0)


@pytest.mark.parametrize('foreach', (None, True, False))
def test_gradients_clipped_by_value(foreach):
    def build(model):
        return lambda: clip_grad_value_(model.parameters(), 0.1, foreach=foreach), dict

    pair = Pair(build, **OP_BY_OP).run(4)
    assert (pair.breaks(), pair.recompiles()) == (0, 0)


def scaled_steps(model):
    scaler = torch.amp.GradScaler('cpu', init_scale=8.0, growth_interval=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    one = torch.ones(())

    def step():
        scaled = scaler.scale(one)
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        return scaled

    return step, lambda: (scaler.state_dict(), optimizer.state_dict())


def test_a_loss_that_is_scaled():
    pair = Pair(scaled_steps, **OP_BY_OP).run()
    assert pair.recompiles(since=3) == 0


def test_a_step_that_is_left_out_because_of_infinities():
    pair = Pair(scaled_steps, **OP_BY_OP).run(3)
    for model in (pair.model, pair.eager_model):
        next(model.parameters()).register_hook  # noqa: B018
    for infinite in (True, False, True, False):
        grads = torch.randn(4)
        for model, function in ((pair.model, pair.compiled), (pair.eager_model, pair.eager)):
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, float('inf') if infinite else grads[0].item())
            function()
        pair.check()


AVERAGES = {
    'swa': {},
    'ema': dict(multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9)),
    'ema one by one': dict(avg_fn=swa_utils.get_ema_avg_fn(0.9)),
    'ema with buffers': dict(multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True),
}


@pytest.mark.parametrize('name', AVERAGES)
def test_averages_of_a_model(name):
    def build(model):
        average = swa_utils.AveragedModel(model, **AVERAGES[name])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step():
            optimizer.step()
            average.update_parameters(model)

        return step, average.state_dict

    pair = Pair(build, **OP_BY_OP).run()
    assert pair.recompiles(since=4) == 0


def test_a_profile_shows_what_runs():
    """Labels are left out, with a profiler and without; kernels are seen."""

    def labelled(x):
        with torch.autograd.profiler.record_function('the label'):
            return x.sin() + 1

    compiled = smelt.compile(labelled)
    x = torch.ones(3)
    compiled(x)
    with torch.autograd.profiler.profile() as profile:
        for _ in range(3):
            torch.testing.assert_close(compiled(x), x.sin() + 1)
    seen = {event.key: event.count for event in profile.key_averages()}
    assert seen['smelt::run'] == 3 and 'the label' not in seen
    if generated.HAS_KERNELS:
        assert sum(count for name, count in seen.items() if name.startswith('smelt::') and 'sin' in name) == 3
    stats = smelt.stats()
    assert (stats['graphs'], stats['graph_breaks'], stats['recompiles']) == (1, 0, 0)


def test_a_label_that_is_kept():
    def labelled(x):
        with torch.autograd.profiler.record_function('the label') as label:
            y = x + 1
        return y, label

    compiled = smelt.compile(labelled)
    for _ in range(3):
        y, label = compiled(torch.ones(3))
        assert torch.equal(y, torch.full((3,), 2.0))
        assert label.record is not None


def test_a_break_inside_a_label():
    def labelled(x):
        with torch.autograd.profiler.record_function('the label'):
            y = x + 1
            smelt.disable(len)(y)
            return y * 2

    compiled = smelt.compile(labelled)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 4.0))
