"""Hooks that the backward pass of a compiled step calls: part of the graph where they are plain tensor code, else a break."""
import functools

import pytest
import torch
from test_step import BACKENDS, assert_same, batch, check, descend, make_model, plain_step, state
from torch import nn
from torch.nn import functional as F

import smelt


def halve(grad):
    return grad * 0.5


def halve_accumulated(parameter):
    parameter.grad.mul_(0.5)


class Clip:
    def __init__(self, limit):
        self.limit = limit

    def by_norm(self, grad):
        return grad * (self.limit / (grad.norm() + 1e-6)).clamp(max=1.0)


MASK = torch.tensor([1.0, 0.0, 1.0, 0.0])
HOOKS = {
    'halved': lambda model: [p.register_hook(halve) for p in model.parameters()],
    'lambda': lambda model: model[0].weight.register_hook(lambda g: g.clamp(-0.01, 0.01)),
    'closure': lambda model, scale=torch.full((16, 8), 3.0): model[0].weight.register_hook(lambda g: g * scale),
    'method': lambda model: [p.register_hook(Clip(0.05).by_norm) for p in model.parameters()],
    'a tensor of the module': lambda model: model[2].bias.register_hook(lambda g: g * MASK + model[2].bias.detach()),
    'two on one': lambda model: (model[2].bias.register_hook(halve), model[2].bias.register_hook(lambda g: g + 1)),
    'nothing returned': lambda model: model[2].bias.register_hook(lambda g: None),
    'removed': lambda model: model[2].bias.register_hook(halve).remove(),
}


@BACKENDS
@pytest.mark.parametrize('name', HOOKS)
def test_hooks_on_parameters(name, backend):
    def make_step(model):
        HOOKS[name](model)
        return plain_step(model)
    report = check(make_step, backend=backend)
    if backend == 'native':
        assert not any(segment.graph.startswith('# op by op') for segment in report.segments), str(report)


@BACKENDS
@pytest.mark.parametrize('hook', [halve, lambda g: -g, lambda g: g / (g.abs().max() + 1)])
def test_hooks_on_the_way(hook, backend):
    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            hidden = model[0](x)
            hidden.register_hook(hook)
            out = model[2](model[1](hidden))
            out.register_hook(lambda g: g * 2)
            loss = F.cross_entropy(out, y)
            loss.backward()
            descend(model)
            return loss
        return step
    report = check(make_step, backend=backend)
    if backend == 'native':
        assert not any(segment.graph.startswith('# op by op') for segment in report.segments), str(report)


@functools.lru_cache
def weight_of(kind):
    return {'one': 1.0, 'half': 0.5}[kind]


@BACKENDS
def test_hooks_behind_a_call_that_is_remembered(backend):
    """What functools.lru_cache remembers is no change that a hook could see."""
    def make_step(model, hook=halve):
        model[0].weight.register_hook(hook)
        inner = plain_step(model)

        def step(x, y):
            return inner(x * weight_of('one'), y)
        return step
    check(make_step, backend=backend)
    # In the hook it is one: each run would make the call twice.
    check(lambda model: make_step(model, lambda g: g * weight_of('half')), backend=backend, breaks=None)


def test_a_hook_whose_number_changes():
    class Scale:
        factor = 1.0

        def __call__(self, model):
            model[0].weight.register_hook(self.hook)
            return model

        def hook(self, grad):
            return grad * self.factor
    scales = []

    def make_step(model):
        scales.append(Scale())
        return plain_step(scales[-1](model))
    plain, compiled = make_model(), make_model()
    expected_step, step = make_step(plain), smelt.compile(make_step(compiled))
    for i in range(8):
        for scale in scales:
            scale.factor = 1.0 / (i + 1)
        torch.testing.assert_close(step(*batch(i)), expected_step(*batch(i)))
        assert_same(state(compiled), state(plain))
    assert len(smelt.explain(step)(*batch(0)).recompiles) <= 2


@BACKENDS
@pytest.mark.parametrize('kind', ['list', 'counter', 'print', 'grad', 'gradient', 'buffer', 'number', 'random'])
def test_hooks_with_effects(kind, backend, capsys):
    def make_step(model):
        seen, counter, total = [], [0], torch.zeros(())

        def hook(grad):
            if kind == 'list':
                seen.append(grad.sum())
            elif kind == 'counter':
                counter[0] += 1
            elif kind == 'print':
                print('called')
            elif kind == 'buffer':
                total.add_(grad.sum())
            elif kind == 'gradient':
                grad.mul_(2)
            elif kind == 'grad':
                model[2].weight.grad = torch.ones_like(model[2].weight)
            elif kind == 'number':
                return grad * 2 if grad.sum().item() > 0 else grad
            else:
                torch.manual_seed(0)
                return grad * torch.rand_like(grad)
            return None
        model[0].weight.register_hook(hook)
        inner = plain_step(model)

        def step(x, y):
            loss = inner(x, y)
            return loss, len(seen), seen[-1] if seen else 0, counter[0], total.clone()
        return step
    check(make_step, calls=4, backend=backend, breaks=None)
    if kind == 'print':
        assert capsys.readouterr().out.count('called') >= 8


def registered(model, way):
    called = []
    if way == 'tensor':
        model[0].weight.register_hook(lambda g: called.append(1))
    elif way == 'changing':
        model[0].weight.register_hook(halve)
    elif way == 'accumulated':
        model[0].weight.register_post_accumulate_grad_hook(lambda p: called.append(1))
    elif way == 'node':
        model.node = model[0].weight.view_as(model[0].weight).grad_fn.next_functions[0][0]
        model.node.register_hook(lambda *_: called.append(1))
    else:
        model[1].register_full_backward_hook(lambda module, gi, go: (gi[0] * 0.5,))
    return called


@BACKENDS
@pytest.mark.parametrize('way', ['tensor', 'changing', 'accumulated', 'node', 'module'])
def test_a_hook_that_comes_later_is_called(way, backend):
    plain, compiled = make_model(), make_model()
    expected_step, step = plain_step(plain), smelt.compile(plain_step(compiled), backend=backend)
    called = [[], []]
    for i in range(8):
        if i == 4:
            called = [registered(plain, way), registered(compiled, way)]
        torch.testing.assert_close(step(*batch(i)), expected_step(*batch(i)))
        assert_same(state(compiled), state(plain))
        assert called[0] == called[1]
    assert len(called[0]) == (4 if way in ('tensor', 'accumulated', 'node') else 0)


def test_a_hook_that_goes_or_is_joined_by_another():
    plain, compiled = make_model(), make_model()
    handles = [model[0].weight.register_hook(halve) for model in (plain, compiled)]
    expected_step, step = plain_step(plain), smelt.compile(plain_step(compiled))
    for i in range(10):
        if i == 4:
            more = [model[0].weight.register_hook(lambda g: g - 1) for model in (plain, compiled)]
        if i == 7:
            [handle.remove() for handle in handles + more]
        torch.testing.assert_close(step(*batch(i)), expected_step(*batch(i)))
        assert_same(state(compiled), state(plain))


def test_a_hook_sees_what_python_has_changed_before():
    class Count:
        n = 0

    def make_step(model):
        count = Count()
        model[0].weight.register_hook(lambda g: g * count.n)
        inner = plain_step(model)

        def step(x, y):
            count.n += 1
            return inner(x, y)
        return step
    check(make_step, breaks=None)


CODE_OF_OTHER_KINDS = {
    'accumulated': lambda model: model[0].weight.register_post_accumulate_grad_hook(halve_accumulated),
    'module': lambda model: model[1].register_full_backward_hook(lambda module, gi, go: (gi[0] * 0.5,)),
    'module before': lambda model: model[1].register_full_backward_pre_hook(lambda module, go: (go[0] * 0.5,)),
}


@BACKENDS
@pytest.mark.parametrize('name', CODE_OF_OTHER_KINDS)
def test_hooks_of_other_kinds(name, backend):
    def make_step(model):
        CODE_OF_OTHER_KINDS[name](model)
        return plain_step(model)
    report = check(make_step, backend=backend, breaks=None)
    assert any('Python code in it' in b.sentence for b in report.breaks), str(report)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -0.5 * grad


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return 2 * x * grad


@BACKENDS
@pytest.mark.parametrize('function', [Reverse, Square])
def test_custom_functions(function, backend):
    class Model(nn.Sequential):
        def forward(self, x):
            return self[2](function.apply(self[0](x)))
    check(plain_step, backend=backend, breaks=None, model=lambda: Model(*make_model()))


@pytest.mark.parametrize('kind', ['tensor', 'accumulated', 'raises'])
@pytest.mark.parametrize('form', ['model', 'step'])
def test_hooks_of_several_parameters_are_called_in_order(form, kind):
    """The order in which eager's pass comes to them; a hook that raises leaves what came before."""
    def play(compile):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        call = compile(model) if form == 'model' else model
        notes = []
        for name, p in model.named_parameters():
            def note(value, name=name):
                notes.append(name)
                if kind == 'raises' and name == '2.weight':
                    raise ValueError(name)
            (p.register_post_accumulate_grad_hook if kind == 'accumulated' else p.register_hook)(note)

        def step(x):
            model.zero_grad()
            call(x).square().sum().backward()
        run = compile(step) if form == 'step' else step
        for i in range(4):
            try:
                run(torch.full((5, 6), 1.0 + i))
            except ValueError as error:
                notes.append(str(error))
            notes.append([0.0 if p.grad is None else p.grad.sum().item() for p in model.parameters()])
        return notes
    for found, expected in zip(play(smelt.compile), play(lambda function: function), strict=True):
        assert found == (expected if isinstance(expected, str) else pytest.approx(expected, rel=1e-3))
