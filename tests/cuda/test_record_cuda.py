"""Recordings on the GPU: the engine's device threads, cuDNN, the CUDA generators, autocast."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import smelt

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a CUDA device')


@pytest.fixture(autouse=True)
def exact():
    """Kernels that give the same bits for the same inputs."""
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    yield
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before


def assert_same(a, b):
    assert (a is None) == (b is None)
    if a is not None:
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride() and a.device == b.device
        assert torch.equal(a, b)


def check_training(model, loss_of, *args, steps=2):
    """Eager and recorded from equal weights: losses, gradients, buffers and generator states."""
    model = model.cuda()
    twin = copy.deepcopy(model)

    def step(module):
        def run(*args):
            module.zero_grad()
            loss = loss_of(module, *args)
            loss.backward()
            return loss
        return run

    graph = None
    for i in range(steps):
        torch.manual_seed(i)
        expected = step(model)(*args)
        after = torch.cuda.get_rng_state()
        torch.manual_seed(i)
        if graph is None:
            graph = smelt.record(step(twin), *args)
        assert_same(graph.run(*args), expected.detach())
        assert torch.equal(torch.cuda.get_rng_state(), after)
        for p, q in zip(model.parameters(), twin.parameters()):
            assert_same(p.grad, q.grad)
        for p, q in zip(model.buffers(), twin.buffers()):
            assert_same(p, q)
        if i == 0:  # gradients exist from now on
            graph = None
    return smelt.record(step(twin), *args)


def randn(*sizes, **options):
    return torch.randn(*sizes, device='cuda', **options)


def test_mlp_uses_the_engines_device_threads():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    check_training(model, lambda m, x: m(x).pow(2).sum(), randn(4, 16))


@pytest.mark.parametrize('channels_last', [False, True])
def test_conv_and_cudnn_batch_norm(channels_last):
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
                          nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    x = randn(4, 3, 16, 16)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    check_training(model, lambda m, x: m(x).pow(2).mean(), x)


def test_cudnn_batch_norm_is_written_down_as_a_mutator():
    norm = nn.BatchNorm2d(8).cuda()
    with torch.backends.cudnn.flags(enabled=True):
        text = str(smelt.record(lambda x: norm(x), randn(4, 8, 6, 6)))
    assert 'cudnn_batch_norm!' in text or '_native_batch_norm_legit' in text or 'batch_norm' in text
    assert text.count('smelt::write') == 3  # mean, variance, number of batches


class Block(nn.Module):
    def __init__(self, dim=32, heads=4, dropout=0.1):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(dim, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(batch, length, dim)), self.dropout, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), self.dropout, self.training)


def test_transformer_with_dropout():
    check_training(Block(), lambda m, x: m(x).pow(2).mean(), randn(2, 16, 32))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_autocast(dtype):
    def loss(model, x):
        with torch.autocast('cuda', dtype=dtype):
            return model(x).float().pow(2).mean()
    check_training(Block(), loss, randn(2, 16, 32))


def test_lstm():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(8, 16, num_layers=2, batch_first=True), nn.Linear(16, 4)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])
    with torch.backends.cudnn.flags(enabled=False):
        check_training(Net(), lambda m, x: m(x).pow(2).mean(), randn(3, 5, 8))
    net = Net().cuda()
    with pytest.raises(smelt.RecordError, match='cudnn.flags'):  # its flattened weights are one piece of memory
        smelt.record(lambda x: net(x), randn(3, 5, 8))


@pytest.mark.parametrize('use_reentrant', [False, True])
def test_checkpoint_drops_the_same_elements_again(use_reentrant):
    def loss(model, x):
        return checkpoint(lambda y: F.dropout(model(y).sin(), 0.5), x, use_reentrant=use_reentrant).sum()
    check_training(nn.Linear(16, 16), loss, randn(4, 16, requires_grad=True))


def test_double_backward():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))

    def loss(model, x):
        grad, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return (grad.norm(dim=1) - 1).pow(2).mean()
    check_training(model, loss, randn(4, 8, requires_grad=True))


@pytest.mark.parametrize('optimizer', [
    lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
    lambda p: torch.optim.AdamW(p, 0.1, fused=True),
])
def test_whole_step(optimizer):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).cuda()
    twin = copy.deepcopy(model)
    x = randn(4, 16)

    def step_of(module, opt):
        def step(x):
            opt.zero_grad()
            loss = module(x).pow(2).mean()
            loss.backward()
            opt.step()
            return loss
        return step

    eager, other = step_of(model, optimizer(model.parameters())), step_of(twin, optimizer(twin.parameters()))
    assert_same(eager(x), other(x))  # the first step makes the state
    graph = smelt.record(other, x)
    for _ in range(3):
        assert_same(eager(x).detach(), graph.run(x))
        for p, q in zip(model.parameters(), twin.parameters()):
            assert_same(p, q)
            assert_same(p.grad, q.grad)


def test_random_numbers_follow_the_generator():
    def draw(x):
        return x + torch.randn_like(x), torch.rand(3, device='cuda'), torch.randperm(7, device='cuda')
    x = randn(5)
    torch.manual_seed(3)
    expected = draw(x)
    graph = smelt.record(draw, x)
    torch.manual_seed(3)
    for a, b in zip(expected, graph.run(x)):
        assert_same(a, b)


def test_tensors_on_both_devices():
    weight = torch.randn(5)

    def run(x):
        return (x + weight.to('cuda')).cpu() * 2, x * torch.tensor(2.0)
    x = randn(5)
    for a, b in zip(run(x), smelt.record(run, x).run(x)):
        assert_same(a, b)


def test_item_is_refused():
    with pytest.raises(smelt.RecordError, match='depends on tensor contents'):
        smelt.record(lambda x: x if x.sum().item() > 0 else -x, randn(3))
