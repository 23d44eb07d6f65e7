"""run() takes what was recorded; anything else is an error that names the argument."""

import pytest
import torch
from record_check import same
from torch import nn

import smelt


def add(a, b):
    return a + b


@pytest.fixture
def graph():
    return smelt.record(add, torch.ones(2, 3), torch.ones(3))


@pytest.mark.parametrize(
    "other, words",
    [
        (lambda: torch.ones(2, 4), r"f32\[2, 4\].*f32\[2, 3\]"),
        (lambda: torch.ones(2), r"f32\[2\].*f32\[2, 3\]"),
        (lambda: torch.ones(2, 3, 1), r"f32\[2, 3, 1\]"),
        (lambda: torch.ones(2, 3, dtype=torch.float64), r"f64\[2, 3\]"),
        (lambda: torch.ones(2, 3, dtype=torch.int64), r"i64\[2, 3\]"),
        (lambda: torch.ones(3, 2).t(), r"f32\[2, 3\]\{1, 2\}"),
        (lambda: torch.ones(2, 6)[:, ::2], r"f32\[2, 3\]\{6, 2\}"),
        (lambda: torch.ones(2, 3, dtype=torch.complex64), r"c64"),
    ],
)
def test_wrong_tensor(graph, other, words):
    with pytest.raises(smelt.Error, match=f"tensor argument 0 is .*{words}"):
        graph.run(other(), torch.ones(3))
    same(graph.run(torch.ones(2, 3), torch.ones(3)), torch.full((2, 3), 2.0))


def test_second_argument_is_named(graph):
    with pytest.raises(smelt.Error, match="tensor argument 1"):
        graph.run(torch.ones(2, 3), torch.ones(4))


@pytest.mark.parametrize(
    "call",
    [
        lambda g: g.run(),
        lambda g: g.run(torch.ones(2, 3)),
        lambda g: g.run(torch.ones(2, 3), torch.ones(3), torch.ones(3)),
        lambda g: g.run([torch.ones(2, 3), torch.ones(3)]),
        lambda g: g.run(torch.ones(2, 3), 3.0),
        lambda g: g.run(torch.ones(2, 3), None),
        lambda g: g.run(torch.ones(2, 3), b=torch.ones(3)),
    ],
)
def test_wrong_structure(graph, call):
    with pytest.raises(smelt.Error, match="run\\(\\) got .* recorded with"):
        call(graph)


def test_plain_arguments_must_be_equal():
    graph = smelt.record(lambda x, n, mode, scale=1.0: x * n * scale, torch.ones(2), 3, "a", scale=2.0)
    same(graph.run(torch.ones(2), 3, "a", scale=2.0), torch.full((2,), 6.0))
    for args, kwargs in [((torch.ones(2), 4, "a"), {"scale": 2.0}), ((torch.ones(2), 3, "b"), {"scale": 2.0}), ((torch.ones(2), 3, "a"), {"scale": 2.5}), ((torch.ones(2), 3, "a"), {})]:
        with pytest.raises(smelt.Error, match="recorded with"):
            graph.run(*args, **kwargs)


def test_number_and_flag_are_not_the_same():
    graph = smelt.record(lambda x, n: x * n, torch.ones(2), 1)
    for other in (True, 1.0):
        with pytest.raises(smelt.Error, match="recorded with"):
            graph.run(torch.ones(2), other)


def test_keyword_order_does_not_matter():
    graph = smelt.record(lambda *, a, b: a - b, a=torch.ones(2), b=torch.zeros(2))
    same(graph.run(b=torch.zeros(2), a=torch.ones(2)), torch.ones(2))


def test_dictionary_order_does_not_swap_tensors():
    graph = smelt.record(lambda d: d["a"] - d["b"], {"a": torch.ones(2), "b": torch.zeros(2)})
    other = {"b": torch.zeros(2), "a": torch.ones(2)}
    try:
        same(graph.run(other), torch.ones(2))
    except smelt.Error:
        pass


def test_another_module_is_not_the_recorded_one():
    model, other = nn.Linear(3, 3), nn.Linear(3, 3)
    x = torch.randn(2, 3)
    graph = smelt.record(lambda m, x: m(x), model, x)
    with pytest.raises(smelt.Error, match="recorded with"):
        graph.run(other, x)
    same(graph.run(model, x), model(x).detach())


def test_captured_parameter_that_changed_shape():
    model, x = nn.Linear(3, 3), torch.randn(2, 3)
    graph = smelt.record(model, x)
    model.weight.data = torch.randn(5, 3)
    with pytest.raises(smelt.Error, match=r"captured.*f32\[5, 3\].*f32\[3, 3\]"):
        graph.run(x)


def test_parameter_data_replaced_with_the_same_shape_is_read():
    model, x = nn.Linear(3, 3), torch.randn(2, 3)
    graph = smelt.record(model, x)
    model.weight.data = torch.randn(3, 3)
    same(graph.run(x), model(x).detach())


def test_gradient_that_is_missing():
    p = torch.randn(3, requires_grad=True)
    p.grad = torch.ones(3)
    graph = smelt.record(lambda: p.grad * 2)
    p.grad = None
    with pytest.raises(smelt.Error, match="grad of .* is missing"):
        graph.run()
    p.grad = torch.full((3,), 4.0)
    same(graph.run(), torch.full((3,), 8.0))


def test_gradient_of_another_kind():
    p = torch.randn(3, requires_grad=True)
    p.grad = torch.ones(3)
    graph = smelt.record(lambda: (p * 2).sum().backward())
    p.grad = torch.ones(3, 1).expand(3, 3)[:, 0]
    try:
        graph.run()
        same(p.grad, torch.full((3,), 3.0))
    except smelt.Error as error:
        assert "grad" in str(error)


def test_requires_grad_of_an_argument_may_differ_where_it_does_not_matter(graph):
    same(graph.run(torch.ones(2, 3, requires_grad=True), torch.ones(3)), torch.full((2, 3), 2.0))


def test_written_argument_that_requires_grad_raises():
    graph = smelt.record(lambda a: a.add_(1), torch.ones(3))
    leaf = torch.ones(3, requires_grad=True)
    try:
        graph.run(leaf)
    except RuntimeError:
        same(leaf, torch.ones(3))


def test_offset_of_an_argument_is_free():
    graph = smelt.record(lambda a: a * 2, torch.ones(3))
    base = torch.arange(10.0)
    same(graph.run(base[4:7]), base[4:7] * 2)


def test_offset_matters_to_as_strided():
    base = torch.arange(20.0)
    graph = smelt.record(lambda a: a.as_strided((2,), (1,), 4), base[4:8])
    for offset in (4, 8):
        part = base[offset : offset + 4]
        try:
            same(graph.run(part), part.as_strided((2,), (1,), 4))
        except smelt.Error:
            assert offset != 4
