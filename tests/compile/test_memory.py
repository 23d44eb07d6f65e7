"""Peak memory of compiled programs, to the byte."""
import pathlib
import sys

import generated
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import smelt

sys.path.append(str(pathlib.Path(__file__).parents[2] / "bench"))
from measure import peak_bytes  # noqa: E402

KERNELS = pytest.mark.skipif(not generated.HAS_KERNELS, reason="built without LLVM")


def peak(call, *inputs):
    """Of the third call; the first is traced."""
    for _ in range(2):
        call(*inputs)
    return peak_bytes(lambda: call(*inputs), lambda: None, "cpu")


# -- random generators


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.dropout = nn.Linear(16, 16), nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(torch.tanh(self.linear(x)))


@torch.no_grad()
def test_a_dropout_that_is_switched_off_keeps_no_state_of_the_generator():
    x = torch.randn(8, 16)
    assert peak(smelt.compile(Dropped().eval()), x) <= 2 * x.nbytes


def test_the_state_of_the_generator_goes_with_what_was_saved():
    model, x = Dropped(), torch.randn(8, 16)
    compiled = smelt.compile(model)
    gradients = sum(p.nbytes for p in model.parameters())
    later = 1 << 20

    def step():
        loss = compiled(x).square().mean()
        loss.backward()
        torch.empty(later // 4)
        model.zero_grad()

    assert peak(step) <= later + gradients + 64


def test_random_numbers_come_again_in_a_second_derivative():
    def run(call):
        torch.manual_seed(3)
        x = torch.ones(64, requires_grad=True)
        first, = torch.autograd.grad(call(x).sum(), x, create_graph=True)
        after = torch.rand(2)
        second, = torch.autograd.grad(first.sum(), x)
        return first, second, after, torch.rand(2)

    def cubed(x):
        return F.dropout(x, 0.5, True) ** 3

    compiled = smelt.compile(cubed)
    for _ in range(3):
        found = run(compiled)
    for one, other in zip(found, run(cubed), strict=True):
        torch.testing.assert_close(one, other)


# -- what every kernel can compute by itself


@KERNELS
@torch.no_grad()
def test_a_tensor_of_one_number_takes_no_memory():
    weight = torch.randn(64, 64)

    def masked(x):
        mask = (1.0 - torch.ones(64)[None, :]) * -3.0
        for _ in range(3):
            x = torch.softmax(x @ weight + mask, -1)
        return x

    x = torch.randn(256, 64)
    compiled = smelt.compile(masked)
    assert peak(compiled, x) == 2 * x.nbytes
    torch.testing.assert_close(compiled(x), masked(x))


# -- layouts


class Block(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, channels), nn.GroupNorm(4, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))


@KERNELS
@torch.no_grad()
def test_a_kernel_writes_what_a_convolution_reads():
    block, x = Block().eval(), torch.randn(2, 32, 24, 24)
    compiled = smelt.compile(block)
    weights = block.conv1.weight.nbytes
    # The input, the result and two copies of the weights, but no copy of the input.
    assert peak(compiled, x) < 2 * x.nbytes + 3 * weights < 3 * x.nbytes + weights
    found, expected = compiled(x), block(x)
    torch.testing.assert_close(found, expected)
    assert found.stride() == expected.stride()


# -- between forward and backward


def kept_by(module, *inputs):
    """What a compiled module and its result keep for the backward, beside the inputs."""
    compiled, held = smelt.compile(module), []
    for _ in range(3):
        compiled(*inputs).sum().backward()
    module.zero_grad()
    return peak_bytes(lambda: None, lambda: held.append(compiled(*inputs)), "cpu")


@KERNELS
def test_of_a_norm_and_an_activation_the_input_is_kept():
    x = torch.randn(2048, 64, requires_grad=True)
    module = nn.Sequential(nn.BatchNorm1d(64), nn.SiLU())
    assert kept_by(module, x) < 1.1 * x.nbytes  # the result


class Pooled(nn.Module):
    def __init__(self, pool):
        super().__init__()
        self.pool = pool

    def forward(self, x):
        return self.pool(F.silu(x))


@KERNELS
# Of a window of four: three comparisons, of a byte each.
@pytest.mark.parametrize("pool, more", ((nn.AvgPool2d(2), 0), (nn.MaxPool2d(2), 3 / 16)))
def test_what_was_pooled_is_not_kept(pool, more):
    x = torch.randn(4, 8, 32, 32, requires_grad=True)
    assert kept_by(Pooled(pool), x) <= (1 / 4 + more) * x.nbytes + 64


@KERNELS
def test_what_is_computed_once_more_is_there_when_it_is_read_and_not_before():
    torch.manual_seed(0)
    layers = 8
    net = nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(64, 64), nn.SiLU())))
    compiled, x = smelt.compile(net), torch.randn(2048, 64)

    def step():
        compiled(x).sum().backward()

    step()
    # One tensor for each layer, what the layer that is at work reads and writes, gradients of weights.
    assert peak(step) < (layers + 3) * x.nbytes
