"""Inputs of a compiled function that autograd has made of something before: passes go on behind them, as in eager."""
import itertools

import pytest
import torch
from test_second_pass import attempt
from test_step import BACKENDS, assert_same

import smelt


def make():
    torch.manual_seed(0)
    return torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)


def gradients(*modules):
    return [None if p.grad is None else p.grad.clone() for module in modules for p in module.parameters()]


def compare(play, **options):
    """play(compile) gives what is to be compared."""
    assert_same(play(lambda function: smelt.compile(function, **options)), play(lambda function: function))


def used_twice(before, after, h):
    """A gradient that is found in part, if it is not looked for behind `h`."""
    loss = (after(h) * before.weight.sum()).square().sum()
    return torch.autograd.grad(loss, [before.weight, after.weight], retain_graph=True), loss


def unused(before, after, h):
    loss = after(h).square().sum()
    return torch.autograd.grad(loss, [before.weight, after.weight, after.bias], allow_unused=True, retain_graph=True), loss


def differentiated(before, after, h):
    loss = after(h).square().sum()
    found = torch.autograd.grad(loss, [before.weight, h], allow_unused=True, create_graph=True)
    return found, loss + found[1].square().sum()


@BACKENDS
@pytest.mark.parametrize('function', [used_twice, unused, differentiated])
@pytest.mark.parametrize('where', ['input', 'stage'])
def test_gradients_of_what_an_input_was_computed_of(function, where, backend):
    def play(compile):
        before, after = make()

        def step(x):
            h = before(x)
            return function(before, after, h), h

        whole, part = compile(step), compile(lambda h: function(before, after, h))
        notes = []
        for _ in range(4):
            x = torch.randn(2, 6)
            if where == 'stage':
                (found, loss), _ = whole(x)
            else:
                found, loss = part(torch.tanh(before(x)))
            loss.backward()
            notes += [*found, loss.detach(), *gradients(before, after)]
        return notes
    compare(play, backend=backend)


def adds(p, w):
    h = torch.sigmoid(p)
    h.mean().backward()
    return h.detach()


def adds_with_a_leaf(p, w):
    h = torch.sigmoid(p)
    (h * w).mean().backward()
    return h.detach()


def adds_and_goes_on(p, w):
    h = torch.sigmoid(p)
    h.mean().backward(retain_graph=True)
    return h * w


def reads(p, w):
    (torch.sigmoid(p) * w).mean().backward()
    return w.grad * 2


def asks(p, w):
    return torch.autograd.grad(torch.sigmoid(p).sum(), [p, w], allow_unused=True)


def asks_and_goes_on(p, w):
    h = torch.sigmoid(p)
    return *torch.autograd.grad(h.sum(), [p, w], allow_unused=True, retain_graph=True), h * w


@pytest.mark.parametrize('function', [adds, adds_with_a_leaf, adds_and_goes_on, reads, asks, asks_and_goes_on])
def test_what_an_input_was_computed_of_changes_from_call_to_call(function):
    def play(compile):
        torch.manual_seed(0)
        w, u = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
        kinds = {'leaf': lambda: torch.randn(4, requires_grad=True), 'w': lambda: torch.tanh(w), 'u': lambda: torch.tanh(u),
                 'both': lambda: torch.tanh(w * u)}
        notes = []
        for order in itertools.permutations(kinds, 3):
            w.grad = u.grad = None
            call = compile(function)
            for kind in (*order, *order):
                p = kinds[kind]()
                out = call(p, w)
                notes += [t.detach() if t is not None else None for t in (out if isinstance(out, tuple) else (out,))]
                if 'goes_on' in function.__name__:
                    (out[-1] if isinstance(out, tuple) else out).sum().backward()
                notes += [None if t.grad is None else t.grad.clone() for t in (w, u, *([p] if p.is_leaf else []))]
        return notes
    compare(play)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad * b, grad * a


def dropped_inside(v, w):
    t = v.clone()
    t[1] = w[0]
    kept = torch.sin(w * 0.5)
    Scaled.apply(v, t)  # a part of its own, whose inputs nobody needs behind it
    return kept.sum(), kept.detach()


def one_of_each(v, w):
    return (v * v).sum(), (w.exp() * 2).sum()


@BACKENDS
@pytest.mark.parametrize('function', [dropped_inside, one_of_each])
@pytest.mark.parametrize('keep', [[], [True], [True, True], [True, False]])
def test_a_result_that_is_dropped_takes_nothing_from_others(function, keep, backend):
    """PyTorch has nodes release what they hold when they die, too."""
    def play(compile):
        torch.manual_seed(0)
        v, w = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
        call, notes = compile(function), []
        for _ in range(3):
            first, second = call(v, w)
            for i, kept in enumerate(keep):
                notes.append(attempt(lambda kept=kept: first.backward(retain_graph=kept)))
                if i == 0:
                    del second
            if keep:
                second = first
            del first
            notes.append(attempt(lambda second=second: second.backward()))
            notes += [v.grad, w.grad]
            notes[-2:] = [None if g is None else g.clone() for g in notes[-2:]]
        return notes
    compare(play, backend=backend)


def scaled_by_a_number(v):
    return v * 0.3


def copied(v):
    return v.clone().copy_(v + 1)


def zeroed(v):
    return v.clone().zero_() + v


def written_in_part(v):
    t = v.clone()
    t[1] = v[0]
    return t


def turned(v):
    return v.flip(0).roll(1).cumsum(0).view(2, 2).tril().repeat(2, 1)


@BACKENDS
@pytest.mark.parametrize('function', [scaled_by_a_number, copied, zeroed, written_in_part, turned])
def test_a_second_pass_raises_where_eager_keeps_something(function, backend):
    def play(compile):
        torch.manual_seed(0)
        v = torch.randn(4, requires_grad=True)
        call, notes = compile(function), []
        for _ in range(3):
            out = call(v)
            notes += [attempt(out.sum().backward), attempt(out.sum().backward), v.grad.clone()]
        return notes
    compare(play, backend=backend)


@BACKENDS
def test_a_pass_uses_up_what_leads_to_what_it_asks_for(backend):
    def play(compile):
        torch.manual_seed(0)
        v, w = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)

        def step(v, w):
            Scaled.apply(v, w).sum().backward()
            h = torch.tanh(v)
            assert torch.autograd.grad(h.sum(), w, allow_unused=True) == (None,)
            k = torch.sin(h)
            torch.autograd.grad(k.sum(), h)
            return h, k

        call, notes = compile(step), []
        for _ in range(3):
            h, k = call(v, w)
            notes += [attempt(k.sum().backward), attempt(h.sum().backward), attempt(h.sum().backward), v.grad.clone(), w.grad.clone()]
        return notes
    compare(play, backend=backend)
