"""Gradients that a step takes itself, and what it does around autograd: torch.autograd.grad, requires_grad_(), retain_grad(), .data."""
import generated
import pytest
import torch
from test_custom_functions import assert_one_graph
from test_step import BACKENDS, assert_same, batch, check, descend, make_model, state
from torch.nn import functional as F

import smelt


def clear(model):
    for p in model.parameters():
        p.grad = None


def penalty(model, x, y):
    inner = x.clone().requires_grad_(True)
    grad, = torch.autograd.grad(model(inner).sum(), inner, create_graph=True)
    return F.cross_entropy(model(x), y) + ((grad.norm(2, dim=1) - 1) ** 2).mean()


def wgan_penalty(model, x, y):
    torch.manual_seed(1)
    fake, part = torch.randn_like(x), torch.rand(x.size(0), 1)
    between = (part * x + (1 - part) * fake).requires_grad_(True)
    out = model(between)
    grad = torch.autograd.grad(outputs=out, inputs=between, grad_outputs=torch.ones_like(out), create_graph=True,
                               retain_graph=True, only_inputs=True)[0]
    return model(fake).mean() - model(x).mean() + 10 * ((grad.norm(2, dim=1) - 1) ** 2).mean()


def meta(model, x, y):
    def run(p):
        return F.cross_entropy(F.linear(torch.tanh(F.linear(x, p[0], p[1])), p[2], p[3]), y)
    p = list(model.parameters())
    for _ in range(2):
        grads = torch.autograd.grad(run(p), p, create_graph=True)
        p = [a - 0.1 * b for a, b in zip(p, grads)]
    return run(p)


def partly_used(model, x, y):
    unused = torch.zeros(3).requires_grad_()
    loss = F.cross_entropy(model(x), y)
    first, second = torch.autograd.grad(loss, [model[0].weight, unused], create_graph=True, allow_unused=True)
    assert second is None
    return loss + first.square().sum()


LOSSES = {'penalty': penalty, 'meta': meta, 'unused inputs': partly_used}


@BACKENDS
@pytest.mark.parametrize('name', LOSSES)
def test_a_gradient_is_part_of_the_loss(name, backend):
    def make_step(model):
        def step(x, y):
            clear(model)
            loss = LOSSES[name](model, x, y)
            loss.backward()
            descend(model)
            return loss.detach()
        return step
    report = check(make_step, backend=backend)
    if backend == 'native':
        assert_one_graph(report)


def test_the_penalty_of_a_gan():
    def make_step(model):
        optim = torch.optim.Adam(model.parameters(), lr=0.01)

        def step(x, y):
            optim.zero_grad()
            loss = wgan_penalty(model, x, y)
            loss.backward()
            optim.step()
            return loss.detach()
        return step
    check(make_step, breaks=None)


def test_a_loss_with_a_gradient_in_it_alone():
    plain, compiled = make_model(), make_model()
    loss = smelt.compile(penalty)
    for i in range(5):
        for model, function in ((plain, penalty), (compiled, loss)):
            clear(model)
            function(model, *batch(i)).backward()
            descend(model)
        assert_same(state(compiled), state(plain))
    assert smelt.explain(loss)(compiled, *batch(0)).break_count == 0


@BACKENDS
def test_steps_without_backward(backend):
    def make_step(model):
        def step(x, y):
            loss = F.cross_entropy(model(x), y)
            p = list(model.parameters())
            grads = torch.autograd.grad(loss, p)
            with torch.no_grad():
                for a, b in zip(p, grads):
                    a.sub_(b, alpha=0.1)
            return loss
        return step
    report = check(make_step, backend=backend)
    if backend == 'native':
        assert_one_graph(report)


def test_what_a_step_returns_is_used_up():
    model = make_model()

    @smelt.compile
    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        return loss, grads[0].norm()
    for i in range(3):
        loss, _ = step(*batch(i))
        with pytest.raises(RuntimeError, match='second time'):
            loss.backward()


@BACKENDS
def test_the_gradient_of_a_tensor_on_the_way(backend):
    def make_step(model):
        def step(x, y):
            clear(model)
            hidden = model[0](x)
            hidden.retain_grad()
            loss = F.cross_entropy(model[2](model[1](hidden)), y)
            loss.backward()
            descend(model)
            return loss.detach(), hidden.grad.norm(), hidden.grad * 2
        return step
    report = check(make_step, backend=backend)
    if backend == 'native':
        assert_one_graph(report)


@BACKENDS
def test_a_tensor_that_retains_its_gradient_is_returned(backend):
    model, plain = make_model(), make_model()

    def make_step(model):
        def step(x, y):
            clear(model)
            hidden = model[0](x)
            hidden.retain_grad()
            F.cross_entropy(model[2](model[1](hidden)), y).backward()
            return hidden
        return step
    step, expected = smelt.compile(make_step(model), backend=backend), make_step(plain)
    for i in range(4):
        torch.testing.assert_close(step(*batch(i)).grad, expected(*batch(i)).grad)


def clamp_data(model, loss):
    descend(model)
    for p in model.parameters():
        p.data.clamp_(-0.2, 0.2)


def update_data(model, loss):
    for p in model.parameters():
        p.data.mul_(0.99)
        p.data.add_(p.grad.data, alpha=-0.1)


def update_rows(model, loss):
    descend(model)
    model[0].weight.data[1:3].mul_(0.5)


@BACKENDS
@pytest.mark.parametrize('update', [clamp_data, update_data, update_rows])
def test_data(update, backend):
    def make_step(model):
        def step(x, y):
            clear(model)
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            update(model, loss)
            return loss.data
        return step
    report = check(make_step, backend=backend)
    if backend == 'native':
        assert_one_graph(report)


def test_a_change_of_data_is_not_counted():
    weight = torch.ones(4, 4, requires_grad=True)

    @smelt.compile
    def halve(x):
        weight.data.mul_(0.5)
        return x + 1
    for i in range(4):
        product = weight * weight  # saves it
        halve(torch.ones(2))
        product.sum().backward()   # and does not find it changed
        assert weight._version == 0
        torch.testing.assert_close(weight.detach(), torch.full((4, 4), 0.5 ** (i + 1)))


def test_data_that_is_changed_before_the_pass():
    def make_step(model):
        def step(x, y):
            clear(model)
            loss = F.cross_entropy(model(x), y)
            model[2].weight.data.mul_(0.5)  # the gradients are those of this weight
            loss.backward()
            descend(model)
            return loss.data
        return step
    check(make_step, breaks=None)


@BACKENDS
def test_one_hot(backend):
    def make_step(model):
        def step(x, y):
            clear(model)
            loss = -(F.log_softmax(model(x), 1) * F.one_hot(y, 4)).sum(1).mean()
            loss.backward()
            descend(model)
            return loss.detach()
        return step
    report = check(make_step, backend=backend)
    if backend == 'native':
        assert_one_graph(report)


@pytest.mark.parametrize('wrong', [-1, 4])
def test_one_hot_of_a_class_that_is_none(wrong):
    function = smelt.compile(lambda y: F.one_hot(y, 4) * 2)
    for _ in range(3):
        torch.testing.assert_close(function(torch.tensor([0, 3])), torch.tensor([[2, 0, 0, 0], [0, 0, 0, 2]]))
    with pytest.raises(RuntimeError, match='Class values must be'):
        function(torch.tensor([0, wrong]))


def test_a_generator():
    def make_step(model):
        generator = torch.Generator().manual_seed(3)

        def step(x, y):
            clear(model)
            loss = F.cross_entropy(model(x + 0.1 * torch.randn(x.shape, generator=generator)), y)
            loss.backward()
            descend(model)
            return loss.detach()
        return step
    assert_one_graph(check(make_step))


def test_functional_call():
    def make_step(model):
        def step(x, y):
            clear(model)
            parameters = {name: p * 0.9 for name, p in model.named_parameters()}
            loss = F.cross_entropy(torch.func.functional_call(model, parameters, (x,)), y)
            loss.backward()
            descend(model)
            return loss.detach()
        return step
    assert_one_graph(check(make_step))


@smelt.disable
def look_at(x):
    return x


@pytest.mark.skipif(not generated.HAS_KERNELS, reason='built without LLVM')
def test_a_break_between_zero_grad_and_backward_leaves_the_forward_compiled():
    def make_step(model):
        def step(x, y):
            clear(model)
            loss = F.cross_entropy(look_at(model(x)), y)
            loss.backward()
            descend(model)
            return loss.detach()
        return step
    report = check(make_step, breaks=None)
    assert report.break_count > 0
    assert_one_graph(report)


@pytest.mark.parametrize('rows', ['mask', 'nonzero'])
def test_shapes_that_depend_on_contents(rows):
    def make_step(model):
        def step(x, y):
            clear(model)
            out = model(x)
            chosen = y > 0 if rows == 'mask' else (y > 0).nonzero().squeeze(1)
            loss = F.cross_entropy(out[chosen], y[chosen])
            loss.backward()
            descend(model)
            return loss.detach()
        return step
    check(make_step, breaks=None)


def test_gradients_that_were_dropped_before_a_second_order_pass():
    plain, compiled = make_model(), make_model()

    def make_forward(model):
        def forward(x, y):
            clear(model)
            return F.cross_entropy(model(x), y)
        return forward
    functions = ((plain, make_forward(plain)), (compiled, smelt.compile(make_forward(compiled))))
    for i in range(4):
        for model, forward in functions:
            loss = forward(*batch(i))
            assert model[0].weight.grad is None
            model[0].weight.grad = torch.ones(16, 8)
            grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
            sum(g.square().sum() for g in grads).backward()
        assert_same(state(compiled), state(plain))


def test_averaged_sgd():
    def make_step(model):
        optim = torch.optim.ASGD(model.parameters(), lr=0.05)

        def step(x, y):
            optim.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optim.step()
            return loss.detach()
        return step
    assert_one_graph(check(make_step, calls=6))
