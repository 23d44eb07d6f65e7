"""Random numbers that kernels draw on a GPU: eager's, bit for bit, and the generator stands where eager leaves it."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import smelt
from smelt import _native

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA')
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
SHAPES = ((1000,), (8, 12, 512, 64), (3, 5, 7), (1 << 22,), (1023,), (2049, 6), (5_000_001,), (1,))


@pytest.fixture(autouse=True)
def fresh():
    smelt.reset()
    _native.forget_cuda_graphs()


def drawn(function, *args, seed=1234, calls=1):
    """What the last of some calls gives from a seed, and where the generator stands then."""
    torch.manual_seed(seed)
    torch.rand(3, device='cuda')
    for _ in range(calls):
        result = function(*args)
    return result, torch.cuda.default_generators[0].get_state()


def expect_same(function, *args, calls=1, exact=True, **settings):
    compiled = smelt.compile(function, **settings)
    for seed in (1234, 5):
        wanted, stands = drawn(function, *args, seed=seed, calls=calls)
        got, stands_too = drawn(compiled, *args, seed=seed, calls=calls)
        assert torch.equal(stands, stands_too)
        for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, wanted)), strict=True):
            assert a.stride() == b.stride()
            torch.testing.assert_close(a, b, rtol=0 if exact else 1e-6, atol=0 if exact else 1e-6)
    return compiled


@pytest.mark.parametrize('dtype', FLOATS)
@pytest.mark.parametrize('shape', SHAPES)
def test_dropouts(dtype, shape):
    x = torch.randn(shape, device='cuda', dtype=dtype)
    expect_same(lambda x: F.dropout(x.abs() + 1, 0.1), x)
    expect_same(lambda x: F.dropout(x.abs() + 1, 0.5), x)


def test_a_dropout_of_another_layout_or_place():
    x = torch.randn(4, 8, 16, 16, device='cuda')
    expect_same(lambda x: F.dropout(x.abs(), 0.3), x.to(memory_format=torch.channels_last))
    expect_same(lambda x: F.dropout(x.abs().transpose(1, 2), 0.3), x)
    expect_same(lambda x: F.dropout(x.abs()[..., 1:], 0.3), x)
    expect_same(lambda x: F.dropout(x.abs().flatten()[3:], 0.3), x)
    expect_same(lambda x: F.dropout(x, 0.3), x)
    expect_same(lambda x: F.dropout(x, 0.3), x.flatten()[1:])
    expect_same(lambda x: F.dropout(x.abs(), 1.0), x)
    expect_same(lambda x: F.dropout(x.abs(), 0.0), x)


@pytest.mark.parametrize('dtype', FLOATS)
@pytest.mark.parametrize('shape', ((1000,), (3, 5, 7), (1 << 22,), (5_000_001,)))
def test_tensors_of_random_numbers(dtype, shape):
    x = torch.randn(shape, device='cuda', dtype=dtype)
    expect_same(lambda x: torch.rand_like(x) + x, x)
    expect_same(lambda x: torch.rand(x.shape, device='cuda', dtype=x.dtype) + x, x)
    expect_same(lambda x: torch.randn_like(x), x)
    expect_same(lambda x: torch.randn(x.shape, device='cuda', dtype=x.dtype), x)
    expect_same(lambda x: torch.randint(3, 13, x.shape, device='cuda') * 2, x)
    expect_same(lambda x: torch.empty_like(x).bernoulli_(0.3) * x, x)
    expect_same(lambda x: torch.empty_like(x).uniform_() + x, x)
    expect_same(lambda x: torch.empty_like(x).uniform_(-1, 2), x)
    expect_same(lambda x: torch.empty_like(x).normal_(1, 0.5), x, exact=False)


def test_dropouts_of_channels_and_what_pytorch_draws_between():
    x = torch.randn(4, 8, 16, 16, device='cuda')

    def mixed(x):
        y = F.dropout2d(x.abs(), 0.4)
        picked = torch.multinomial(torch.softmax(y.flatten(1), -1), 3)
        z = F.dropout(y * 2, 0.1) + torch.rand(1, device='cuda', dtype=torch.float64).float()
        return z, picked, F.alpha_dropout(z, 0.2, training=True)
    expect_same(mixed, x, options={'numerics': 'eager'})  # else a product and a sum are rounded once


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        x = F.dropout(F.gelu(self.first(x)), 0.1)
        return F.dropout(self.second(x), 0.2)


@pytest.mark.parametrize('mode', ['default', 'reduce-overhead'])
@pytest.mark.parametrize('whole', [True, False])
def test_training_drops_the_same_elements_forward_and_backward(mode, whole):
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = Net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(128, 64, device='cuda')
        called = smelt.compile(model, mode=mode) if compiled and not whole else model

        def step(called=called, x=x, optimizer=optimizer):
            optimizer.zero_grad()
            loss = called(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()
        if compiled and whole:
            step = smelt.compile(step, mode=mode)
        torch.manual_seed(99)
        losses = [step() for _ in range(12)]
        results.append((losses, [p.detach() for p in model.parameters()],
                        torch.cuda.default_generators[0].get_state()))
    for a, b in zip(results[0][:2], results[1][:2], strict=True):
        for left, right in zip(a, b, strict=True):
            torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-5)
    assert torch.equal(results[0][2], results[1][2])


def test_draws_are_no_reason_against_a_cuda_graph():
    x = torch.randn(512, 512, device='cuda')
    compiled = expect_same(lambda x: F.dropout(x.abs() @ x, 0.1) + 1, x, calls=8, mode='reduce-overhead', options={'numerics': 'eager'})
    counts = _native.cuda_graphs()
    assert counts['captured'] == 1 and counts['refused'] == 0, counts['reasons']
    assert not torch.equal(compiled(x), compiled(x))


def test_in_a_cuda_graph_of_the_users():
    x = torch.randn(64, 64, device='cuda')
    compiled = smelt.compile(lambda x: F.dropout(x.abs(), 0.5))
    for _ in range(3):
        compiled(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = compiled(x)
    graph.replay()
    first = out.clone()
    graph.replay()
    assert not torch.equal(first, out) and 0.3 < (out == 0).float().mean().item() < 0.7
