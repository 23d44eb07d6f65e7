"""Custom autograd functions in a compiled step: forward and backward are part of the one graph."""
import pytest
import torch
from test_step import BACKENDS, assert_same, batch, check, descend, make_model, plain_step, state
from torch import nn
from torch.nn import functional as F

import smelt


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.neg() * ctx.factor, None


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        gate = torch.sigmoid(x)
        return grad * gate * (1 + x * (1 - gate))


class Exp(torch.autograd.Function):
    """What it saves is its output."""
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, = ctx.saved_tensors
        return grad * y


class Kept(torch.autograd.Function):
    """What it keeps are tensors that forward made, one of them in an attribute."""
    @staticmethod
    def forward(ctx, x):
        mask = x > 0
        ctx.scale = x.abs().mean()
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, grad):
        mask, = ctx.saved_tensors
        return grad * mask * ctx.scale


class Separate(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * torch.sigmoid(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        gate = torch.sigmoid(x)
        return grad * (y + gate * (1 - y))


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return grad * ((x > -1) & (x < 1))


class Two(torch.autograd.Function):
    """Of its outputs one has no gradient, and of the other two one is not used."""
    @staticmethod
    def forward(ctx, x):
        places = x.argmax(1)
        ctx.mark_non_differentiable(places)
        return x * 2, places, x * 3

    @staticmethod
    def backward(ctx, grad, _, other):
        assert other is not None
        return grad * 2 + other * 3


class Unmaterialized(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, grad, other):
        return grad * 2 if other is None else grad * 2 + other * 3


ACTIVATIONS = {
    'reverse': lambda x: Reverse.apply(x, 0.5),
    'straight through': StraightThrough.apply,
    'identity': Identity.apply,
    'swish': Swish.apply,
    'output saved': Exp.apply,
    'inner tensors': Kept.apply,
    'setup_context': Separate.apply,
    'once differentiable': Once.apply,
    'one after another': lambda x: Swish.apply(Reverse.apply(Swish.apply(x), -1.0)),
    'in two branches': lambda x: x + Swish.apply(x) + StraightThrough.apply(x),
    'several outputs': lambda x: Two.apply(x)[0],
    'gradients that are None': lambda x: Unmaterialized.apply(x)[0],
}


class Activated(nn.Sequential):
    def __init__(self, function):
        super().__init__(*make_model())
        self.function = function

    def forward(self, x):
        return self[2](self.function(self[0](x)))


def assert_one_graph(report):
    assert len(report.segments) >= 1
    for segment in report.segments:
        assert not segment.graph.startswith('# op by op'), str(report)


@BACKENDS
@pytest.mark.parametrize('name', ACTIVATIONS)
def test_functions_are_part_of_the_graph(name, backend):
    report = check(plain_step, backend=backend, model=lambda: Activated(ACTIVATIONS[name]))
    if backend == 'native':
        assert_one_graph(report)


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return x.mm(weight.t()) + bias

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        to_x = grad.mm(weight) if ctx.needs_input_grad[0] else None
        return to_x, grad.t().mm(x), grad.sum(0)


@pytest.mark.parametrize('optimizer', [torch.optim.SGD, torch.optim.Adam])
def test_functions_of_parameters_and_an_optimizer(optimizer):
    def make_step(model):
        optim = optimizer(model.parameters(), lr=0.05)

        def step(x, y):
            optim.zero_grad()
            hidden = torch.tanh(Linear.apply(x, model[0].weight, model[0].bias))
            loss = F.cross_entropy(Linear.apply(hidden, model[2].weight, model[2].bias), y)
            loss.backward()
            optim.step()
            return loss
        return step
    assert_one_graph(check(make_step, calls=6))


class Loss(torch.autograd.Function):
    """What its backward is given is the gradient that the pass starts with."""
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return F.cross_entropy(x, y)

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * (torch.softmax(x, 1) - F.one_hot(y, 4)) / x.shape[0], None


@BACKENDS
def test_a_function_that_a_pass_starts_from(backend):
    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            loss = Loss.apply(model(x), y)
            loss.backward()
            descend(model)
            return loss.detach()
        return step
    check(make_step, backend=backend)


def test_two_passes_through_one_function():
    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            loss = F.cross_entropy(model[2](Swish.apply(model[0](x))), y)
            loss.backward(retain_graph=True)
            (loss * 2).backward()
            descend(model)
            return loss.detach()
        return step
    assert_one_graph(check(make_step))


def test_a_gradient_of_gradients_through_a_function():
    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            inner = x.clone().requires_grad_()
            out = model[2](Swish.apply(model[0](inner)))
            grad, = torch.autograd.grad(out.sum(), inner, create_graph=True)
            loss = F.cross_entropy(out, y) + grad.square().mean()
            loss.backward()
            descend(model)
            return loss.detach()
        return step
    assert_one_graph(check(make_step))


SCALE = [2.0]


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        return grad * SCALE[0]


def test_what_backward_reads_is_guarded():
    plain, compiled = Activated(Scaled.apply), Activated(Scaled.apply)
    expected_step, step = plain_step(plain), smelt.compile(plain_step(compiled))
    try:
        for i in range(6):
            SCALE[0] = 2.0 if i < 3 else 5.0
            torch.testing.assert_close(step(*batch(i)), expected_step(*batch(i)))
            assert_same(state(compiled), state(plain))
    finally:
        SCALE[0] = 2.0


CALLED = []


class Counted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        CALLED.append(len(CALLED))
        return grad * 2


class Drawing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        torch.manual_seed(0)
        return grad * torch.rand_like(grad)


class Changing(torch.autograd.Function):
    total = torch.zeros(())

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        Changing.total.add_(1)
        return grad * 2


@BACKENDS
@pytest.mark.parametrize('function', [Counted, Drawing, Changing])
def test_a_backward_with_effects_is_called(function, backend):
    del CALLED[:]
    Changing.total.zero_()
    check(plain_step, calls=4, backend=backend, breaks=None, model=lambda: Activated(function.apply))
    calls = 9  # 4 of each, and one to explain
    assert len(CALLED) == (calls if function is Counted else 0)
    assert Changing.total == (calls if function is Changing else 0)
