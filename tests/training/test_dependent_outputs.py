"""A compiled model whose outputs are computed from each other: each is a tensor of the autograd graph as in eager."""
import copy

import pytest
import torch
from torch import nn

import smelt

from generated import HAS_KERNELS

CALLS = 4


class Classifier(nn.Module):
    """Keeps what it computes on the way, and changes statistics and random state between."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(16, 5)
        self.kept = None

    def forward(self, x, y):
        hidden = torch.relu_(self.norm(self.embed(x)))
        self.kept = hidden
        mixed = self.drop(hidden) + hidden.mean(0)
        logits = self.head(mixed)
        return {'hidden': hidden, 'mixed': mixed, 'logits': logits,
                'loss': nn.functional.cross_entropy(logits, y)}


class Cells(nn.Module):
    """The last of the stacked states is an output too, and lstm_cell computes h from c in one op."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(8, 8)

    def forward(self, x):
        h = c = torch.zeros(x.shape[1], 8)
        states = []
        for step in x:
            h, c = self.cell(step, (h, c))
            states.append(h)
        return torch.stack(states), h, c


def assert_same(probe, model, make_inputs):
    """probe(model, *inputs) gives the tensors to compare."""
    compiled = smelt.compile(copy.deepcopy(model))
    for call in range(CALLS):
        found = []
        for each in (model, compiled):
            torch.manual_seed(call)
            found.append(probe(each, *make_inputs()))
        for expected, got in zip(*found, strict=True):
            assert (expected is None) == (got is None)
            if expected is not None:
                torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert smelt.stats()['graphs'] == 1
    assert smelt.stats()['graph_breaks'] == 0


def batch():
    return torch.randn(4, 8), torch.randint(5, (4,))


def grads_of(model):
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_outputs_retain_gradients_and_call_hooks():
    def probe(model, x, y):
        outputs = model(x, y)
        for output in outputs.values():
            output.retain_grad()
        model.kept.register_hook(lambda grad: grad * 2)
        model.zero_grad()
        outputs['loss'].backward()
        return [output.grad for output in outputs.values()] + grads_of(model) + [model.norm.running_mean.clone()]

    assert_same(probe, Classifier(), batch)


@pytest.mark.parametrize('of, to', [('loss', 'hidden'), ('loss', 'logits'), ('logits', 'mixed'), ('mixed', 'hidden')])
def test_gradient_of_one_output_to_another(of, to):
    def probe(model, x, y):
        outputs = model(x, y)
        return torch.autograd.grad(outputs[of].square().sum(), [outputs[to], model.embed.weight])

    assert_same(probe, Classifier(), batch)


def test_there_is_no_way_back():
    def probe(model, x, y):
        outputs = model(x, y)
        return torch.autograd.grad(outputs['hidden'].sum(), [outputs['loss']], allow_unused=True)

    assert_same(probe, Classifier(), batch)


def test_gradients_of_gradients():
    def probe(model, x, y):
        outputs = model(x, y)
        grad, = torch.autograd.grad(outputs['loss'], outputs['mixed'], create_graph=True)
        wanted = [outputs['mixed'], outputs['hidden'], model.head.weight, model.embed.weight]
        return [grad.detach(), *torch.autograd.grad(grad.square().sum() * 100, wanted)]

    assert_same(probe, Classifier(), batch)


def test_ops_whose_results_depend_on_each_other():
    def probe(model, x):
        states, h, c = model(x)
        c.retain_grad()
        found = torch.autograd.grad(states.sum() + h.sin().sum(), [h, c], retain_graph=True)
        model.zero_grad()
        (states.square().sum() + (h * c).sum()).backward()
        return [*found, c.grad, *grads_of(model)]

    assert_same(probe, Cells(), lambda: (torch.randn(6, 3, 8),))


def test_an_error_behind_a_change():
    """Statistics are changed by the first stage, the loss raises in a later one: once, as in eager."""
    models = Classifier(), smelt.compile(Classifier())
    models[1].load_state_dict(models[0].state_dict())
    for call in range(CALLS):
        x = torch.randn(4, 8)
        for model in models:
            with pytest.raises(IndexError, match=f'Target {9 + call} is out of bounds'):
                model(x, torch.tensor([0, 1, 2, 9 + call]))
        torch.testing.assert_close(models[0].norm.running_mean, models[1].norm.running_mean)
        assert models[0].norm.num_batches_tracked == models[1].norm.num_batches_tracked


@pytest.mark.skipif(not HAS_KERNELS, reason='without kernels they are left to the log')
def test_stages_are_compiled():
    model = smelt.compile(Classifier())
    for _ in range(3):
        model(*batch())['loss'].backward()
    text = str(smelt.explain(Classifier())(*batch()))
    assert smelt.stats()['ops_fallback'] < smelt.stats()['ops_native']
    assert 'op by op' not in text


def test_a_change_of_what_no_gradient_needs():
    """What relu saved is changed, but the gradient that is asked for does not come by there."""
    def function(x, w):
        return torch.relu(x * w), (x + w).sin()

    compiled = smelt.compile(function)
    for call in range(CALLS):
        torch.manual_seed(call)
        x, w = torch.randn(5), torch.randn(5, requires_grad=True)
        for each in (function, compiled):
            first, second = each(x, w)
            with torch.no_grad():
                first.add_(1)
            grad, = torch.autograd.grad(second.sum(), w, retain_graph=True)
            torch.testing.assert_close(grad, (x + w).detach().cos())
            with pytest.raises(RuntimeError, match='modified by an inplace operation'):
                torch.autograd.grad(first.sum(), w)


def of_other_inputs(x, y):
    """Three results, no two of the same inputs."""
    return torch.where(y > 0, y, y * 0.1), torch.cat([y, x]).sin(), x.exp()


@pytest.mark.parametrize('order', [(1,), (2,), (0, 2), (1, 2), (2, 1)])
@pytest.mark.parametrize('backend', ['native', 'interpret'])
def test_results_that_nobody_keeps(order, backend):
    """One is dropped before the pass, with the node that it had; the others' gradients are theirs all the same."""
    compiled = smelt.compile(of_other_inputs, backend=backend)
    for _ in range(CALLS):
        x, y = torch.randn(5, 4), torch.randn(5, 4)
        found = []
        for run in (of_other_inputs, compiled):
            inputs = [tensor.clone().requires_grad_() for tensor in (x, y)]
            results = list(run(*inputs))
            for i in range(3):
                if i not in order:
                    results[i] = None
            for i in order:
                results[i].square().sum().backward()
                results[i] = None
            found.append([tensor.grad for tensor in inputs])
        assert [grad is None for grad in found[0]] == [grad is None for grad in found[1]]
        torch.testing.assert_close([g for g in found[1] if g is not None], [g for g in found[0] if g is not None])


def test_many_results_that_nobody_keeps():
    """Each call takes what the last one gave: all of their nodes go at once."""
    compiled = smelt.compile(lambda x, y: (x * 1.01 + y, y * 2, (x * y).sin()), backend='interpret')
    y = torch.randn(3, requires_grad=True)
    x = torch.randn(3, requires_grad=True)
    for _ in range(30_000):
        x = compiled(x, y)[0]
    del x
