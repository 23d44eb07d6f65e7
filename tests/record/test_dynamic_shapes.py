"""Symbolic sizes: one recording, run at other sizes, bit-equal to eager there."""

import copy

import pytest
import torch
import torch.nn.functional as F
from record_check import same
from torch import nn

import smelt


def check_sizes(fn, make, dynamic, sizes=(2, 3, 7, 16, 33), at=4):
    """Records fn(*make(at)) and runs it at other sizes; fn must not keep state."""
    graph = smelt.record(fn, *make(at), dynamic_shapes=dynamic)
    assert smelt._native.normalise_graph(str(graph)) == str(graph)
    for n in sizes:
        args = make(n)
        torch.manual_seed(1)
        expected = fn(*copy.deepcopy(args))
        torch.manual_seed(1)
        same(detached(graph.run(*args)), detached(expected))
    return graph


def detached(value):
    if isinstance(value, torch.Tensor):
        return value.detach()
    return type(value)(detached(v) for v in value) if isinstance(value, (list, tuple)) else value


BATCH = [{0: "batch"}]


def gradients(model):
    def fn(x):
        y = model(x)
        loss = (y * torch.linspace(-1, 1, y.shape[-1])).pow(2).mean()
        return [loss, y, *torch.autograd.grad(loss, list(model.parameters()))]

    return fn


class Block(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).split(width, 2)
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(batch, length, width)), 0.1)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 3, stride=2)
        self.norm = nn.BatchNorm2d(6).eval()
        self.out = nn.Linear(8, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 2)
        return self.out(F.adaptive_avg_pool2d(F.relu(self.conv2(x)), 1).flatten(1))


def test_mlp_forward_and_backward():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    graph = check_sizes(gradients(model), lambda n: [torch.randn(n, 6)], BATCH)
    assert "s0" in str(graph)


def test_transformer_block():
    check_sizes(gradients(Block()), lambda n: [torch.randn(n, 5, 8)], BATCH)


def test_transformer_block_with_dynamic_length():
    check_sizes(gradients(Block()), lambda n: [torch.randn(3, n, 8)], [{1: "length"}])


def test_transformer_block_with_both():
    check_sizes(gradients(Block()), lambda n: [torch.randn(n, n + 3, 8)], [{0: "batch", 1: "length"}])


def test_conv_net():
    check_sizes(gradients(ConvNet()), lambda n: [torch.randn(n, 3, 12, 12)], BATCH)


def test_conv_net_channels_last():
    model = ConvNet().to(memory_format=torch.channels_last)
    make = lambda n: [torch.randn(n, 3, 12, 12).to(memory_format=torch.channels_last)]  # noqa: E731
    check_sizes(gradients(model), make, BATCH)


def test_python_arithmetic_on_sizes():
    def fn(x):
        n = x.shape[0]
        m = x.size(1)
        y = x.reshape(n * m // 2, 2) * 2
        pad = torch.zeros(n + 3, m)
        pad[:n] = x
        return y, pad, x.new_ones(2 * n - 1), torch.arange(n), x.sum() * (m - 1), x[: n - 1], x.expand(n, n, m)

    check_sizes(fn, lambda n: [torch.randn(n, 6)], BATCH)


def test_same_name_same_size():
    graph = smelt.record(lambda a, b: a + b, torch.ones(4, 2), torch.ones(4, 2), dynamic_shapes=[{0: "n"}, {0: "n"}])
    same(graph.run(torch.ones(7, 2), torch.ones(7, 2)), torch.full((7, 2), 2.0))
    with pytest.raises(smelt.Error, match="tensor argument 1"):
        graph.run(torch.ones(7, 2), torch.ones(6, 2))
    with pytest.raises(smelt.Error, match='"n" is 4 in one argument and 5 in another'):
        smelt.record(lambda a, b: a, torch.ones(4), torch.ones(5), dynamic_shapes=[{0: "n"}, {0: "n"}])


def test_two_names_that_meet_are_tied_by_a_guard():
    def fn(a, b):
        return a + b  # line of the guard

    graph = smelt.record(fn, torch.ones(4), torch.ones(4), dynamic_shapes=[{0: "n"}, {0: "m"}])
    same(graph.run(torch.ones(6), torch.ones(6)), torch.full((6,), 2.0))
    with pytest.raises(smelt.Error) as caught:
        graph.run(torch.ones(6), torch.ones(7))
    assert f"{__file__}:{fn.__code__.co_firstlineno + 1}" in str(caught.value)


def test_branch_on_a_size_is_a_guard_with_its_line():
    def fn(x):
        if x.shape[0] > 3:  # line of the guard
            return x * 2
        return x * 3

    graph = smelt.record(fn, torch.ones(8), dynamic_shapes=BATCH)
    same(graph.run(torch.ones(5)), torch.full((5,), 2.0))
    with pytest.raises(smelt.Error, match="> 3|<= 3|>= 4") as caught:
        graph.run(torch.ones(2))
    assert f"{__file__}:{fn.__code__.co_firstlineno + 1}" in str(caught.value)


def test_size_turned_into_a_number_is_pinned():
    def fn(x):
        return [x[i] for i in range(x.shape[0])]

    graph = smelt.record(fn, torch.ones(3, 2), dynamic_shapes=BATCH)
    assert len(graph.run(torch.ones(3, 2))) == 3
    with pytest.raises(smelt.Error, match="Record it again") as caught:
        graph.run(torch.ones(4, 2))
    assert __file__ in str(caught.value)


@pytest.mark.parametrize("size", [0, 1])
def test_sizes_0_and_1(size):
    with pytest.raises(smelt.Error, match="at least 2"):
        smelt.record(lambda x: x * 2, torch.ones(size, 3), dynamic_shapes=BATCH)
    graph = smelt.record(lambda x: x * 2, torch.ones(4, 3), dynamic_shapes=BATCH)
    with pytest.raises(smelt.Error, match=">= 2"):
        graph.run(torch.ones(size, 3))


def test_static_dimension_stays_checked():
    graph = smelt.record(lambda x: x * 2, torch.ones(4, 3), dynamic_shapes=BATCH)
    with pytest.raises(smelt.Error, match="tensor argument 0"):
        graph.run(torch.ones(4, 5))
    with pytest.raises(smelt.Error, match="tensor argument 0"):
        graph.run(torch.ones(3, 5).t())
    with pytest.raises(smelt.Error, match="tensor argument 0"):
        graph.run(torch.ones(4))
    with pytest.raises(smelt.Error, match="tensor argument 0"):
        graph.run(torch.ones(()))


@pytest.mark.parametrize("dims", [{5: "n"}, {-3: "n"}])
def test_no_such_dimension(dims):
    with pytest.raises(smelt.Error, match="dynamic dimension"):
        smelt.record(lambda x: x, torch.ones(4, 3), dynamic_shapes=[dims])


@pytest.mark.parametrize("dynamic", [{0: "n"}, [{0: "n"}, None, None], [None, {0: "n"}]])
def test_wrong_dynamic_shapes(dynamic):
    with pytest.raises(smelt.Error, match="dynamic_shapes"):
        smelt.record(lambda x, n: x, torch.ones(4, 3), 2, dynamic_shapes=dynamic)


def test_mutation_and_views():
    def fn(x, total):
        total += x.sum(0)
        x[1:].mul_(2)
        x.t()[0].add_(1)
        return x[-1], x.view(-1)[::2].clone(), torch.cat([x, x[:1]]), x.flip(0)

    make = lambda n: [torch.randn(n, 4), torch.zeros(4)]  # noqa: E731
    graph = smelt.record(fn, *make(4), dynamic_shapes=[{0: "n"}, None])
    for n in (3, 6):
        args = make(n)
        copies = copy.deepcopy(args)
        same(graph.run(*args), fn(*copies))
        same(args, copies)


def test_random_numbers():
    def fn(x):
        return F.dropout(x, 0.5), torch.rand(x.shape[0]), torch.randperm(x.shape[0]), x.clone().normal_()

    check_sizes(fn, lambda n: [torch.randn(n, 6)], BATCH)


OPS = {
    "softmax and norms": lambda x: (x.softmax(0), F.layer_norm(x, (6,)), F.normalize(x), x.var(0), x.cumsum(0)),
    "sorting": lambda x: (*x.sort(0), *x.topk(2, 0), x.argmax(0), x.median(0).values),
    "matmul": lambda x: (x @ x.t(), torch.einsum("ij,kj->ik", x, x), x.t() @ x, torch.bmm(x[None], x.t()[None])),
    "indexing": lambda x: (x[0], x[-1], x[::2], x.index_select(0, torch.tensor([0, 1])), x.gather(0, torch.zeros(1, 6).long())),
    "reshapes": lambda x: (x.flatten(), x.unsqueeze(1), x.repeat(2, 1), x.view(-1, 3), x.unflatten(1, (2, 3)), x.roll(1, 0)),
    "masks": lambda x: (x.tril(), torch.where(x > 0, x, 0.0), x.masked_fill(x > 0, 1.0)),
    "losses": lambda x: (F.mse_loss(x, x * 2), F.cross_entropy(x, torch.zeros(x.shape[0]).long()), F.smooth_l1_loss(x, x + 1)),
    "pads": lambda x: (F.pad(x, (0, 0, 1, 2)), F.pad(x, (1, 1)), torch.stack([x, x])),
    "conv1d over it": lambda x: (F.conv1d(x.t()[None], torch.ones(2, 6, 2)), F.avg_pool1d(x.t()[None], 2), F.max_pool1d(x.t()[None], 2)),
    "fft": lambda x: torch.fft.rfft(x, dim=0),
}  # fmt: skip


@pytest.mark.parametrize("name", OPS)
def test_ops(name):
    """Right at other sizes, or an error of the run that names what pinned the size."""
    try:
        check_sizes(OPS[name], lambda n: [torch.randn(n, 6)], BATCH, sizes=(3, 8, 17))
    except smelt.Error as error:
        assert "Record it again" in str(error) and not isinstance(error, smelt.RecordError)


@pytest.mark.parametrize('factor', (2.0, 3, 0.5))
def test_interpolation_by_a_factor(factor):
    graph = smelt.record(lambda x: F.interpolate(x[None, None], scale_factor=factor), torch.randn(4, 6), dynamic_shapes=BATCH)
    for rows in (4, 6, 10):
        x = torch.randn(rows, 6)
        same(graph.run(x), F.interpolate(x[None, None], scale_factor=factor))


def test_interpolation_by_a_ratio_keeps_the_size():
    graph = smelt.record(lambda x: F.interpolate(x[None, None], scale_factor=1.7), torch.randn(4, 6), dynamic_shapes=BATCH)
    for length in range(2, 60):
        x = torch.randn(length, 6)
        same(graph.run(x), F.interpolate(x[None, None], scale_factor=1.7))


def test_interpolation_by_any_other_factor_pins_the_size():
    """PyTorch computes the new size in floating point."""
    factor = 3**0.5
    graph = smelt.record(lambda x: F.interpolate(x[None, None], scale_factor=factor), torch.randn(4, 6), dynamic_shapes=BATCH)
    x = torch.randn(4, 6)
    same(graph.run(x), F.interpolate(x[None, None], scale_factor=factor))
    with pytest.raises(smelt.Error, match="s0 == 4"):
        graph.run(torch.randn(5, 6))
