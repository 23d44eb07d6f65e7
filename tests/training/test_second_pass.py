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


# -- passes from several results, one after the other: each frees what is on its own way, as in eager


def apart(x, w):
    return (x * w).sum(), (x.cos() * w * w).sum()


def shared(x, w):
    h = (x * w).sin()
    return h.sum(), (h * h).sum()


def shared_sum(x, w):
    h = w + 1
    return (h * x).sum(), (h * h).sum()


def three(x, w):
    h = (x * w).sin()
    return h.sum(), (w * w).sum(), (h + 1).mean()


def view_and_all(x, w):
    h = w.sin()
    return h[0] * 3, h.sum()


def written(x, w):
    h = w.cos()
    h.mul_(x[0])
    return h.sum(), (w ** 3).sum()


def linear(x, w):
    return (w + x).sum(), (w * w).sum()


def attempt(call):
    try:
        call()
        return 'passed'
    except RuntimeError as error:
        return str(error).split('\n')[0][:60]


@BACKENDS
@pytest.mark.parametrize('more', ['', 'hook', 'parameter', 'retain', 'break'])
def test_passes_to_a_leaf_that_the_call_makes(more, backend):
    def make(x):
        w = torch.full((3,), 2.0)
        w = torch.nn.Parameter(w) if more == 'parameter' else w.requires_grad_()
        if more == 'hook':
            w.register_hook(lambda g: g * 2)
        h = w.sin() * 3
        if more == 'retain':
            h.retain_grad()
        if more == 'break':
            str(id(h))
        return w, h, (h * x).sum(), (w * w * x).sum()

    compiled, x = smelt.compile(make, backend=backend), torch.arange(6.0).reshape(2, 3)
    for order in (1, -1, 1):
        seen = []
        for call in (make, compiled):
            w, h, *sums = call(x)
            for one in sums[::order]:
                one.backward()
            seen.append((type(w).__name__, w.is_leaf, h.retains_grad, [w.grad] + [h.grad] * h.retains_grad))
        assert seen[1][:3] == seen[0][:3]
        torch.testing.assert_close(seen[1][3], seen[0][3])


@BACKENDS
@pytest.mark.parametrize('order', ['in turn', 'backwards', 'twice', 'kept', 'together', 'gradients'])
@pytest.mark.parametrize('function', [apart, shared, shared_sum, three, view_and_all, written, linear])
def test_passes_from_several_results(function, order, backend):
    compiled = smelt.compile(function, backend=backend)
    for number in range(3):
        seen = []
        for call in (function, compiled):
            x, w = torch.arange(6.0).reshape(2, 3) + number, torch.full((3,), 2.0, requires_grad=True)
            results = list(call(x, w))
            if order == 'backwards':
                results.reverse()
            if order == 'together':
                results = [sum(results[:2]), *results]
            if order == 'twice':
                results = results * 2
            if order == 'gradients':
                outcomes = [attempt(lambda one=one: torch.autograd.grad(one, w)) for one in results]
            else:
                outcomes = [attempt(lambda one=one, keep=order == 'kept' and one is results[0]: one.backward(retain_graph=keep))
                            for one in results]
            seen.append((outcomes, w.grad))
        (expected, grad), (found, found_grad) = seen
        assert found == expected
        torch.testing.assert_close(found_grad, grad)


# -- results that are computed of different inputs: a pass comes to nothing that its result was not computed of

def of_each(p, q, r, layer):
    return (p * p).sum(), (q.exp() * 2).sum(), (r + 1).sum()


def of_two(p, q, r, layer):
    p, q, r = layer(p), layer(q), layer(r)
    return p.tanh().sum(), (p * q).sum(), (q.exp() + r).mean(), (r * 2).sum()


def of_all_and_one(p, q, r, layer):
    return (p * q * r).sum(), layer(q).sin().sum()


@BACKENDS
@pytest.mark.parametrize('order', ['in turn', 'backwards', 'together', 'in pairs', 'kept', 'gradients', 'graph', 'beside'])
@pytest.mark.parametrize('function', [of_each, of_two, of_all_and_one])
def test_passes_from_results_of_different_inputs(function, order, backend):
    """The inputs are computed by eager, whose nodes drop what they saved when a pass comes to them, with a gradient or without."""
    layer = torch.nn.Linear(3, 3)
    compiled = smelt.compile(function, backend=backend)
    for number in range(3):
        seen = []
        for call in (function, compiled):
            layer.zero_grad()
            w = torch.full((3,), 2.0 + number, requires_grad=True)
            inputs = w.exp() / 8, w.sin(), (w * 2).tanh()
            results = list(call(*inputs, layer))
            if order == 'backwards':
                results.reverse()
            if order == 'together':
                results = [sum(results)]
            if order == 'in pairs':
                results = [results[0] + results[-1] * 3, *results[1:-1]]
            if order == 'kept':
                results = [sum(results)] * 3
            if order == 'beside':
                results = [results[0] + inputs[1].sum(), *results[1:]]
            if order == 'gradients':
                found = [g for one in results for g in torch.autograd.grad(one, inputs, retain_graph=True, allow_unused=True)]
            elif order == 'graph':
                gradient = torch.autograd.grad(results[1], inputs[1], create_graph=True)[0]
                found = [attempt((gradient.sum() + results[0]).backward)]
            else:
                found = []
                for i, one in enumerate(results):
                    found.append(attempt(lambda one=one, keep=order == 'kept' and i == 0: one.backward(retain_graph=keep)))
                    if found[-1] != 'passed':
                        break
            seen.append([*found, w.grad, layer.weight.grad])
        assert_same(seen[1], seen[0])


@pytest.mark.parametrize('where', ['result', 'leaf', 'input', 'accumulation'])
def test_hooks_off_the_way_of_a_pass_are_not_called(where):
    def two(v, p, q):
        return (v * p).sin(), (v * q).exp() * q

    compiled = smelt.compile(two)
    for _ in range(3):
        seen = []
        for call in (two, compiled):
            calls = []
            v, p, q = torch.ones(3), torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
            inner = q.cos() if where == 'input' else q
            if where in ('leaf', 'input'):
                inner.register_hook(calls.append)
            if where == 'accumulation':
                accumulate = torch.autograd.graph.get_gradient_edge(q).node
                accumulate.register_hook(lambda *_, calls=calls: calls.append(None))
            a, b = call(v, p, inner)
            if where == 'result':
                b.register_hook(calls.append)
            a.sum().backward()
            calls.append('between')
            b.sum().backward()
            seen.append([*calls, p.grad, q.grad])
        assert_same(seen[1], seen[0])
