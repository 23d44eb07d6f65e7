"""Passes to some leaves only, and a further pass from what a compiled step returns: as in eager."""
import pytest
import torch
from test_step import BACKENDS, assert_same, batch, check, descend, make_model, state
from torch.nn import functional as F

import smelt


def clear(model):
    for p in model.parameters():
        p.grad = None


@BACKENDS
@pytest.mark.parametrize('call', ['method', 'function', 'gradient', 'one', 'twice'])
def test_backward_to_some_inputs(backend, call):
    def make_step(model):
        some = [model[2].weight, model[0].bias]

        def step(x, y):
            clear(model)
            loss = F.cross_entropy(model(x), y)
            if call == 'method':
                loss.backward(inputs=some)
            elif call == 'function':
                torch.autograd.backward([loss], inputs=some)
            elif call == 'gradient':
                torch.autograd.backward([loss], [torch.full((), 2.0)], inputs=some)
            elif call == 'one':
                loss.backward(inputs=model[0].weight)
            else:
                loss.backward(inputs=some, retain_graph=True)
                loss.backward(inputs=[model[0].weight, model[2].weight])
            descend(model)
            return loss.detach()
        return step
    # PyTorch compares the shape of a gradient that is given by code that is not followed.
    check(make_step, backend=backend, breaks=None if call == 'gradient' else 0)


@BACKENDS
def test_inputs_keep_the_gradients_that_are_there(backend):
    def make_step(model):
        for p in model.parameters():
            p.grad = torch.ones_like(p)

        def step(x, y):
            F.cross_entropy(model(x), y).backward(inputs=[model[0].weight])
            descend(model)
            return x.sum()
        return step
    check(make_step, backend=backend)


def test_inputs_that_are_no_leaves():
    def make_step(model):
        def step(x, y):
            clear(model)
            hidden = model[0](x)
            F.cross_entropy(model[2](model[1](hidden)), y).backward(inputs=[hidden, model[2].weight])
            descend(model)
            return hidden.grad
        return step
    report = check(make_step, breaks=None)
    assert any('backward(inputs=...)' in b.sentence for b in report.breaks)


def test_inputs_that_the_pass_does_not_reach():
    apart = torch.nn.Parameter(torch.ones(3))

    def make_step(model):
        def step(x, y):
            clear(model)
            F.cross_entropy(model(x), y).backward(inputs=[apart, model[2].weight])
            descend(model)
            return x.sum()
        return step
    check(make_step)
    assert apart.grad is None


def outcome(function):
    try:
        function()
    except Exception as error:  # noqa: BLE001
        return type(error), str(error).split('.')[0]
    return None


@BACKENDS
@pytest.mark.parametrize('kind', ['nothing saved', 'saved', 'saved below', 'inputs'])
def test_a_second_pass_is_as_in_eager(backend, kind):
    """Where no node has saved a tensor, eager goes through the graph again."""
    def make_step(model):
        def step(x, y):
            if kind == 'nothing saved':
                loss = sum(p.sum() for p in model.parameters()) + x.sum()
            elif kind == 'saved':
                loss = F.cross_entropy(model(x), y)
            else:
                loss = F.cross_entropy(model(x), y) + 1 + model[0].bias.sum()
            if kind == 'inputs':
                loss.backward(inputs=[model[0].bias])
            else:
                loss.backward()
            return loss
        return step
    plain, compiled = make_model(), make_model()
    expected_step, step = make_step(plain), smelt.compile(make_step(compiled), backend=backend)
    for i in range(4):
        expected, found = expected_step(*batch(i)), step(*batch(i))
        assert found.requires_grad
        for _ in range(2):
            assert outcome(found.backward) == outcome(expected.backward)
        assert_same(state(compiled), state(plain))
