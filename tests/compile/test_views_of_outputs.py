"""Outputs on one memory (logits and logits.t()): views of each other as in eager, and what comes before them in kernels."""
import pytest
import torch

import smelt

from generated import HAS_KERNELS

LAYER = torch.nn.Linear(4, 4)


def base(x):
    return LAYER(x).tanh() * 3


def transposed(x):
    logits = base(x) @ x.t()
    return logits, logits.t()


def first_and_more(x):
    hidden = base(x)
    first = hidden[:, 0]
    return hidden, first, (first + 1).relu()


def two_steps(x):
    hidden = base(x)
    return hidden, hidden.view(-1).view(2, -1)


def halves(x):
    keys, values = base(x).chunk(2, -1)
    return keys, values, (keys * values).sum()


def detached(x):
    hidden = base(x)
    return hidden, hidden.detach()


def maybe_a_copy(x):
    hidden = base(x)
    return hidden, hidden.reshape(-1), hidden.t().reshape(-1)


def changed_before(x):
    hidden = base(x)
    hidden.mul_(2)
    return hidden, hidden.view(-1)


def changed_by_a_view(x):
    hidden = base(x)
    flat = hidden.view(-1)
    flat.mul_(2)
    return hidden, flat


def of_the_argument(x):
    return x.t(), x[0], x * 2


COMPILED = (transposed, first_and_more, two_steps, halves, detached, maybe_a_copy)
LEFT_ALONE = (changed_before, changed_by_a_view, of_the_argument)


def sharing(tensors):
    places = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [place == other for place in places for other in places]


def gradients(outputs):
    LAYER.zero_grad()
    sum(((i + 1) * tensor).sum() for i, tensor in enumerate(outputs) if tensor.requires_grad).backward()
    return LAYER.weight.grad.clone()


@pytest.mark.parametrize('grad', (True, False))
@pytest.mark.parametrize('function', COMPILED + LEFT_ALONE)
def test_views_of_each_other(function, grad):
    compiled = smelt.compile(function, fullgraph=True)
    with torch.set_grad_enabled(grad):
        for _ in range(3):
            x = torch.randn(4, 4)
            expected, found = function(x.clone()), compiled(x.clone())
            for one, other in zip(expected, found):
                torch.testing.assert_close(one, other)
                assert one.stride() == other.stride() and one.requires_grad == other.requires_grad
                assert one._is_view() == other._is_view()
            assert sharing(expected) == sharing(found)
            if expected[0].requires_grad:
                torch.testing.assert_close(gradients(expected), gradients(found))
            elif not grad:
                expected[0].add_(1), found[0].add_(1)
                for one, other in zip(expected, found):
                    torch.testing.assert_close(one, other)


@pytest.mark.skipif(not HAS_KERNELS, reason='without kernels, code that takes part in autograd is left to the log')
@pytest.mark.parametrize('grad', (True, False))
@pytest.mark.parametrize('function', COMPILED)
def test_what_comes_before_is_compiled(function, grad):
    compiled = smelt.compile(function)
    with torch.set_grad_enabled(grad):
        for _ in range(2):
            compiled(torch.randn(4, 4))
    assert smelt.stats()['ops_native'] > 0
