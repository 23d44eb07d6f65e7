"""What a function returns: fresh tensors, the caller's own, and views of them."""

import pytest
import torch
from record_check import check, same

import smelt


def test_input_returned_is_the_very_object():
    x, p = torch.ones(3), torch.nn.Parameter(torch.ones(3))
    graph = smelt.record(lambda a: (a, p, a), x)
    a, b, c = graph.run(x)
    assert a is x and b is p and c is x
    other = torch.zeros(3)
    assert graph.run(other)[0] is other


def test_written_input_returned():
    x = torch.ones(3)
    graph = smelt.record(lambda a: a.add_(1), x)
    assert graph.run(x) is x
    same(x, torch.full((3,), 2.0))


VIEWS = {
    "row": lambda a: a[1],
    "transposed": lambda a: a.t(),
    "chain": lambda a: a.view(-1)[2:10].view(2, 4).t()[1:],
    "expanded": lambda a: a[0].expand(3, 6),
    "detached": lambda a: a.detach(),
    "as_strided": lambda a: a.as_strided((2, 2), (6, 1), 3),
    "unfolded": lambda a: a.unfold(1, 3, 1),
    "data": lambda a: a.data,
    "viewed as": lambda a: a.view_as(torch.empty(6, 4)),
    "contiguous": lambda a: a.contiguous(),
    "reshaped": lambda a: a.reshape(2, 12),
    "flattened": lambda a: a.flatten(),
    "other dtype": lambda a: a.view(torch.int32),
    "to same": lambda a: a.to(torch.float32),
    "unsqueezed": lambda a: a[None, ..., None],
    "diagonal": lambda a: a.diagonal(),
    "selected part of split": lambda a: a.split(2)[1],
    "half of chunk": lambda a: a.chunk(3, 1)[2][1:],
    "permuted": lambda a: a.view(2, 2, 6).permute(2, 0, 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_view_of_input(name):
    check(VIEWS[name], torch.randn(4, 6))


@pytest.mark.parametrize("name", VIEWS)
def test_view_of_written_input(name):
    def fn(a):
        view = VIEWS[name](a)
        a.add_(1)
        return view

    check(fn, torch.randn(4, 6))


@pytest.mark.parametrize("name", VIEWS)
def test_write_through_returned_view(name):
    def fn(a):
        view = VIEWS[name](a)
        if name == "expanded" or name == "unfolded":
            a[0].mul_(3)
        else:
            view.add_(1)
        return view

    check(fn, torch.randn(4, 6))


def test_returned_view_is_a_view_of_the_callers_tensor():
    x = torch.zeros(4)
    view = smelt.record(lambda a: a[1:3], x).run(x)
    assert view._base is x
    x.fill_(5)
    same(view, torch.full((2,), 5.0))
    view.fill_(7)
    same(x, torch.tensor([5.0, 7.0, 7.0, 5.0]))


def test_view_of_captured_tensor():
    w = torch.zeros(4)
    view = smelt.record(lambda: w[:2]).run()
    w.add_(1)
    same(view, torch.ones(2))


def test_fresh_results_do_not_share_memory_with_inputs():
    """x.clone() and x + 0 are fresh in eager; so are copies of what an input held before it was written."""

    def fn(a):
        before = a.clone()
        a.add_(1)
        return before, a.clone(), torch.Tensor.contiguous(a.t()), a.to(torch.float32, copy=True)

    check(fn, torch.randn(3, 4))


def test_views_of_one_fresh_tensor():
    def fn(a):
        y = a * 2
        return y, y[0], y.t(), y

    check(fn, torch.randn(3, 4))


def test_views_of_one_fresh_tensor_written_through():
    def fn(a):
        y = a * 2
        row = y[0]
        row.add_(1)
        return y, row

    check(fn, torch.randn(3, 4))


def test_conjugated_views_of_input():
    x = torch.randn(3, dtype=torch.complex64)
    graph = check(lambda z: (z.conj(), z.conj().conj(), z.real, z.imag, z.conj()[1:], torch.view_as_real(z)), x)
    assert graph.run(x)[0]._base is x


def test_equal_views_returned_twice():
    check(lambda a: (a[0], a[0], a.t(), a.t()), torch.randn(3, 4))


def test_one_result_twice():
    def fn(a):
        y = a + 1
        return y, [y, y * 1], y

    x = torch.ones(2)
    first, (second, third), fourth = smelt.record(fn, x).run(x)
    assert first is second or first.data_ptr() == second.data_ptr()
    assert fourth.data_ptr() == first.data_ptr() != third.data_ptr()


def test_results_of_two_runs_are_apart():
    graph = smelt.record(lambda a: (a + 1, torch.zeros(3), torch.tensor([1.0, 2.0, 3.0]), torch.ones(3) * 2), torch.ones(3))
    first, second = graph.run(torch.ones(3)), graph.run(torch.ones(3))
    expected = [t.clone() for t in second]
    for t in first:
        t.fill_(9)
    same(list(second), expected)
    same(list(graph.run(torch.ones(3))), expected)


def test_result_requires_no_grad():
    w = torch.ones(3, requires_grad=True)
    out = smelt.record(lambda: w * 2).run()
    assert not out.requires_grad


def test_memory_of_intermediates_is_not_handed_out():
    """A result that is part of a bigger tensor keeps eager's storage; a result of its own does not keep another."""
    x = torch.randn(1000)
    total = smelt.record(lambda a: (a * 2).sum(), x).run(x)
    assert total.untyped_storage().nbytes() == 4
