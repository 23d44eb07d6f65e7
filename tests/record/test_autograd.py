"""The backward of the real autograd engine, written down: .grad, autograd.grad, higher orders."""

import copy

import pytest
import torch
import torch.nn.functional as F
from record_check import check, same, with_grads

import smelt


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def param(*shape):
    return torch.randn(*shape, requires_grad=True)


def test_grad():
    check(lambda a, b: torch.autograd.grad(((a * b).tanh()).sum(), b), torch.randn(4, 6), param(4, 6))


def test_grad_of_several_with_grad_outputs():
    def fn(a, b, g):
        y, z = a * b, (a + b).sin()
        return torch.autograd.grad([y, z], [a, b], [g, g * 2])

    check(fn, param(4), param(4), torch.randn(4))


def test_grad_of_unused():
    check(lambda a, b: torch.autograd.grad((a * 2).sum(), [a, b], allow_unused=True), param(3), param(3))
    check(lambda a, b: torch.autograd.grad((a * 2).sum(), [a, b], materialize_grads=True), param(3), param(3))


def test_backward_fresh():
    def fn(model, x):
        model.zero_grad(set_to_none=True)
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss.detach()

    check(fn, with_grads(mlp()), torch.randn(5, 6), runs=3)


def test_backward_into_none():
    model, x = mlp(), torch.randn(5, 6)
    eager = copy.deepcopy(model)
    graph = smelt.record(lambda m, x: m(x).sum().backward(), model, x)
    assert all(p.grad is None for p in model.parameters())
    graph.run(model, x)
    eager(x).sum().backward()
    for p, q in zip(model.parameters(), eager.parameters()):
        same(p.grad, q.grad)
        assert p.grad.requires_grad is False and p.grad.is_leaf


def test_second_run_with_gradients_in_place():
    """Recorded with .grad None, run with a gradient there: eager would add, so the run adds or says it can't."""
    model, x = mlp(), torch.randn(5, 6)
    eager = copy.deepcopy(model)
    graph = smelt.record(lambda m, x: m(x).sum().backward(), model, x)
    graph.run(model, x)
    for _ in range(2):
        eager(x).sum().backward()
    try:
        graph.run(model, x)
    except smelt.Error as error:
        assert "grad" in str(error)
        return
    for p, q in zip(model.parameters(), eager.parameters()):
        same(p.grad, q.grad)


def test_backward_accumulates():
    def fn(model, x):
        model(x).sum().backward()

    model = with_grads(mlp())
    check(fn, model, torch.randn(5, 6), runs=3)


def test_existing_gradient_keeps_its_memory():
    p = param(3)
    p.grad = torch.ones(3)
    grad = p.grad
    graph = smelt.record(lambda: (p * 2).sum().backward())
    graph.run()
    assert p.grad is grad
    same(grad, torch.full((3,), 3.0))


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_inside(set_to_none):
    def fn(model, x):
        for _ in range(2):
            model.zero_grad(set_to_none=set_to_none)
            model(x).sum().backward()

    model = with_grads(mlp())
    check(fn, model, torch.randn(5, 6))


def test_zero_grad_only():
    def fn(model):
        model.zero_grad()

    model = with_grads(mlp())
    graph = smelt.record(fn, model)
    assert all(p.grad is not None for p in model.parameters())
    graph.run(model)
    assert all(p.grad is None for p in model.parameters())


def test_gradient_read_and_changed_inside():
    def fn(model, x):
        model.zero_grad()
        model(x).sum().backward()
        norm = sum(p.grad.norm() for p in model.parameters())
        with torch.no_grad():
            for p in model.parameters():
                p.grad.mul_(0.5)
                p.grad = p.grad + 1
        return norm

    check(fn, with_grads(mlp()), torch.randn(5, 6))


def test_gradient_of_the_argument():
    def fn(x):
        x.grad = None
        (x * x).sum().backward()
        return x.grad

    x = param(4)
    x.grad = torch.randn(4)
    check(fn, x)


def test_gradient_shared_with_a_result():
    """Eager's p.grad and the tensor returned are one; so they are after a run."""
    p = param(3)

    def fn():
        p.grad = None
        (p * 2).sum().backward()
        return p.grad

    out = smelt.record(fn).run()
    assert out is p.grad or out.data_ptr() == p.grad.data_ptr()


def test_double_backward():
    def fn(b):
        (g,) = torch.autograd.grad((b**3).sum(), b, create_graph=True)
        (h,) = torch.autograd.grad(g.pow(2).sum(), b, create_graph=True)
        return g, torch.autograd.grad(h.sum(), b)

    check(fn, param(4, 6))


def test_gradient_penalty():
    def fn(critic, real, fake):
        critic.zero_grad()
        mixed = (0.3 * real + 0.7 * fake).requires_grad_()
        (g,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        loss = critic(fake).mean() - critic(real).mean() + 10 * (g.norm(dim=1) - 1).pow(2).mean()
        loss.backward()
        return loss.detach()

    check(fn, with_grads(mlp()), torch.randn(5, 6), torch.randn(5, 6))


def test_double_backward_of_conv_and_norm():
    def fn(x, w, b):
        y = F.layer_norm(F.conv2d(x, w, padding=1), (4, 4)).tanh()
        (g,) = torch.autograd.grad(y.pow(2).sum(), w, create_graph=True)
        return torch.autograd.grad(g.pow(2).sum(), [x, w])

    check(fn, param(2, 3, 4, 4), param(3, 3, 3, 3), param(3))


def test_retain_graph():
    def fn(w):
        y = (w * w).sum()
        y.backward(retain_graph=True)
        y.backward()

    w = param(4)
    w.grad = torch.zeros(4)
    check(fn, w)


def test_freed_graph_raises_as_in_eager():
    def fn(w):
        y = (w * w).sum()
        y.backward()
        y.backward()

    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        smelt.record(fn, param(4))


def test_retain_grad_of_intermediate():
    def fn(w):
        y = w * 2
        y.retain_grad()
        y.sin().sum().backward(inputs=[w])
        return y.grad

    w = param(4)
    w.grad = torch.zeros(4)
    check(fn, w)


def test_requires_grad_of_intermediate():
    def fn(x):
        y = (x * 2).requires_grad_()
        return torch.autograd.grad((y * y).sum(), y)

    check(fn, torch.randn(4))


def test_in_place_inside_the_graph():
    def fn(w):
        y = w * 2
        y[0] = 0
        y.mul_(3)
        z = y.view(-1)
        z[1:3].add_(w[0, 0])
        return torch.autograd.grad(y.sum(), w)

    check(fn, param(3, 4))


def test_in_place_that_spoils_the_backward_raises_as_in_eager():
    def fn(w):
        y = w.exp()
        y.add_(1)
        y.sum().backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        smelt.record(fn, param(3))
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        smelt.record(lambda w: w.add_(1), param(3))


def test_backward_from_an_outside_graph_is_refused():
    w = param(3)
    y = w * 2

    def fn():
        (y * y).sum().backward()

    with pytest.raises(smelt.RecordError, match="outside"):
        smelt.record(fn)
    assert w.grad is None


def test_non_leaf_argument_without_backward():
    w = param(3)
    y = w * 2
    same(smelt.record(lambda t: t + 1, y).run(y), (y + 1).detach())


def test_results_used_with_eager_autograd():
    """A run is a plain computation: eager code can go on with its results."""
    w = param(3)
    out = smelt.record(lambda t: t * 2, torch.ones(3)).run(torch.ones(3))
    (w * out).sum().backward()
    same(w.grad, torch.full((3,), 2.0))


def test_set_grad_of_a_parameter_from_outside_tensor():
    p, g = param(3), torch.randn(3)

    def fn(g):
        p.grad = g

    graph = smelt.record(fn, g)
    assert p.grad is None
    graph.run(g)
    same(p.grad, g)
