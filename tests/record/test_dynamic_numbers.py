"""Dynamic sizes that enter the computation as numbers."""

import math

import pytest
import torch
import torch.nn.functional as F
from record_check import same

import smelt

BATCH = [{0: "batch"}]

FOLLOWED = {
    "division": lambda x: x.sum(0) / x.shape[0],
    "product": lambda x: (x * x.shape[0], x.shape[0] * x, torch.mul(x, x.shape[0])),
    "sum": lambda x: (x + x.shape[0], x - 2 * x.shape[0], x.shape[0] - x, torch.add(x, x, alpha=x.shape[0])),
    "in place": lambda x: (x * 1).mul_(x.shape[0]).div_(x.numel()),
    "comparison": lambda x: (x == x.shape[0], x < x.shape[0]),
    "scalars": lambda x: (x.pow(x.shape[0]), x.clamp(max=x.shape[0]), x.masked_fill(x > 0, x.shape[0])),
    "filled": lambda x: (torch.full((2,), x.shape[0]), torch.where(x > 0, x, x.shape[0]), x.new_full((2,), x.shape[0])),
    "integers": lambda x: (x * (x.shape[0] % 3), x * (x.shape[0] // 2), x * x.shape[0] ** 2, x * -x.shape[0]),
    "smaller and larger": lambda x: (x * torch.sym_min(x.shape[0], 9), x[: torch.sym_max(1, x.shape[0] // 2)]),
    "foreach": lambda x: torch._foreach_mul([x, x], x.shape[0]),
    "gradient": lambda x: torch.autograd.grad((x.requires_grad_() / x.shape[0]).pow(2).sum() * x.numel(), x),
}
PINNED = {
    "float": lambda x: x * float(x.shape[0]),
    "product with a float": lambda x: x * (x.shape[0] * 1.5),
    "quotient": lambda x: x * (1 / x.shape[0]),
    "root": lambda x: x * x.shape[0] ** -0.5,
    "int": lambda x: x * int(x.shape[0]),
    "ceil": lambda x: x[: math.ceil(x.shape[0] / 3)],
    "math": lambda x: x * math.sqrt(x.shape[0]),
    "length": lambda x: x + len(x),
    "probability": lambda x: F.dropout(x, 1 / x.shape[0]),
    "torch.tensor": lambda x: torch.tensor([x.shape[0], 1]),
    "shape.numel": lambda x: x * x.shape.numel(),
    "bytes": lambda x: x * x.nbytes,
    "branch on a float": lambda x: x * (2 if x.shape[0] / 2 < 2.5 else 3),
}
REFUSED = {
    "abs": lambda x: x * abs(x.shape[0]),
    "round": lambda x: x * round(x.shape[0] * 0.5),
    "bits": lambda x: x * (x.shape[0] & 1),
    "divmod": lambda x: x * divmod(x.shape[0], 3)[0],
    "hash": lambda x: x * {4: 2}[x.shape[0]],
}


def run_both(graph, fn, x):
    torch.manual_seed(1)
    expected = fn(x.clone())
    torch.manual_seed(1)
    same(graph.run(x), expected.detach() if isinstance(expected, torch.Tensor) else expected)


@pytest.mark.parametrize("name", FOLLOWED)
def test_followed(name):
    graph = smelt.record(FOLLOWED[name], torch.rand(4, 6), dynamic_shapes=BATCH)
    for n in (4, 2, 9, 30):
        run_both(graph, FOLLOWED[name], torch.rand(n, 6))


@pytest.mark.parametrize("name", PINNED)
def test_pinned(name):
    """With a float in it Python computes a number: right at the recorded size, and only there."""
    graph = smelt.record(PINNED[name], torch.rand(4, 6), dynamic_shapes=BATCH)
    run_both(graph, PINNED[name], torch.rand(4, 6))
    with pytest.raises(smelt.Error, match="s0") as caught:
        graph.run(torch.rand(9, 6))
    assert f"{__file__}:{PINNED[name].__code__.co_firstlineno}" in str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    with pytest.raises(smelt.RecordError, match="dynamic size") as caught:
        smelt.record(REFUSED[name], torch.rand(4, 6), dynamic_shapes=BATCH)
    assert f"{__file__}:{REFUSED[name].__code__.co_firstlineno}" in str(caught.value)
