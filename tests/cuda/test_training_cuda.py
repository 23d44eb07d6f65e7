"""Training on a GPU: batch norms, convolutions with the channels last and gradients of embeddings are what eager gives."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import smelt
from smelt import _native

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA')


def train(model, loss, *args, steps=3, lr=0.05):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def step():
        optimizer.zero_grad()
        value = loss(model, *args)
        value.backward()
        optimizer.step()
        return value.detach()
    return step, steps


def compare(model, loss, *args, rtol=2e-3, atol=2e-4, whole=True):
    """Some steps, whole or with a compiled model, against eager's."""
    twin = copy.deepcopy(model)
    expected, steps = train(model, loss, *args)
    if whole:
        got, _ = train(twin, loss, *args)
        got = smelt.compile(got)
    else:
        got, _ = train(smelt.compile(twin), loss, *args)
    for _ in range(steps):
        torch.testing.assert_close(got(), expected(), rtol=rtol, atol=atol)
    for (name, a), b in zip(twin.state_dict().items(), model.state_dict().values()):
        assert a.stride() == b.stride(), name
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol, msg=lambda text, name=name: f'{name}: {text}')


class Net(nn.Module):
    """Enough convolutions for the channels to come last; one that is left as it is."""

    def __init__(self, width=32):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(width, width, 1 + 2 * (i % 2), padding=i % 2, bias=False),
                                                  nn.BatchNorm2d(width), nn.ReLU()) for i in range(8))
        self.deep = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        for block in self.blocks:
            x = x + block(x)
        return self.head(self.deep(x).mean((2, 3)))


@pytest.mark.parametrize('whole', [False, True])
@pytest.mark.parametrize('format', [torch.contiguous_format, torch.channels_last])
def test_a_net_of_convolutions_and_batch_norms(format, whole):
    torch.manual_seed(0)
    model = Net().cuda().to(memory_format=format)
    x = torch.randn(8, 3, 32, 32, device='cuda').to(memory_format=format)
    y = torch.randint(0, 10, (8,), device='cuda')
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        compare(model, lambda m, x, y: F.cross_entropy(m(x), y), x, y, whole=whole)


def test_a_step_under_autocast_with_momentum_and_the_channels_last_is_one_graph():
    torch.manual_seed(0)
    model = Net().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(8, 3, 32, 32, device='cuda').to(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (8,), device='cuda')

    @smelt.compile(fullgraph=True)
    def step():
        optimizer.zero_grad()
        with torch.autocast('cuda', torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()
    losses = [step().item() for _ in range(8)]
    assert losses[-1] < losses[0]
    report = smelt.explain(step)()
    assert not any(segment.op_by_op for segment in report.segments), str(report)


def test_statistics_of_a_batch_far_from_zero():
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4).cuda()
    x = torch.randn(64, 4, 16, 16, device='cuda') * 0.01 + 1000
    expected = (x.double() - x.double().mean((0, 2, 3), keepdim=True)) / x.double().var((0, 2, 3), False, True).add(1e-5).sqrt()
    got = smelt.compile(lambda x: norm(x) * 2)(x) / 2
    far = (nn.BatchNorm2d(4).cuda()(x).double() - expected).abs().max()
    assert (got.double() - expected).abs().max() <= 2 * far + 1e-3


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(1000, 32, mode='sum') for _ in range(3))
        self.one = nn.Embedding(500, 32)
        self.head = nn.Linear(32, 1)

    def forward(self, indices):
        x = sum(table(indices[k]) for k, table in enumerate(self.tables))
        return self.head(x + self.one(indices[0][:, 0] % 500)).squeeze(1)


def test_gradients_of_embeddings():
    torch.manual_seed(0)
    indices = torch.randint(0, 1000, (3, 256, 4), device='cuda')
    compare(Bags().cuda(), lambda m, i: m(i).square().mean(), indices)


def test_gradients_of_embeddings_are_the_same_each_time_where_that_is_asked_for():
    torch.manual_seed(0)
    table = nn.Embedding(50, 64).cuda()
    indices, weight = torch.randint(0, 50, (4096,), device='cuda'), torch.randn(4096, 64, device='cuda')

    def gradient():
        return torch.autograd.grad((table(indices) * weight).sum(), table.weight)[0]
    torch.use_deterministic_algorithms(True)
    try:
        compiled = smelt.compile(gradient)
        first = compiled().clone()
        assert all(torch.equal(compiled(), first) for _ in range(10))
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize('foreach', [True, False])
def test_counts_of_steps_need_no_kernel_of_pytorchs(foreach):
    weights = [nn.Parameter(torch.randn(8, 8, device='cuda')) for _ in range(20)]
    optimizer = torch.optim.AdamW(weights, foreach=foreach)
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    step = smelt.compile(optimizer.step)
    for _ in range(4):
        step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        step()
    assert not [event.name for event in profiled.events() if event.name in ('aten::add', 'aten::_foreach_add')]
    assert all(optimizer.state[weight]['step'].item() == 5 for weight in weights)


def test_a_branch_on_integers_that_the_program_makes_does_not_wait_for_the_device():
    def f(x):
        positions = torch.arange(8, device=x.device)[None].expand(2, -1)
        if (torch.diff(positions, dim=-1) == 1).all():
            return torch.relu(x) * 2
        return x
    x = torch.randn(64, device='cuda')
    compiled = smelt.compile(f, mode='reduce-overhead', fullgraph=True)
    _native.forget_cuda_graphs()
    for _ in range(6):
        torch.testing.assert_close(compiled(x), f(x))
    assert _native.cuda_graphs()['refused'] == 0


def test_logits_of_an_odd_vocabulary_and_their_gradients():
    torch.manual_seed(0)
    hidden = torch.randn(2, 256, 256, device='cuda', dtype=torch.bfloat16)
    head = nn.Linear(256, 10001, bias=False).cuda().bfloat16()
    target = torch.randint(0, 10001, (512,), device='cuda')

    def loss(head, hidden):
        return F.cross_entropy(head(hidden).float().view(-1, 10001), target)
    compare(head, loss, hidden, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
@pytest.mark.parametrize('layout', [torch.contiguous_format, torch.channels_last])
def test_gradients_of_maxima_are_asked_for(dtype, layout):
    x = torch.randn(4, 16, 33, 40, device='cuda', dtype=dtype).to(memory_format=layout)

    def gradient(x, kernel, stride, padding):
        x = x.detach().requires_grad_()
        y = F.max_pool2d(x.sin(), kernel, stride, padding)
        (y * y).sum().backward()
        return x.grad
    compiled = smelt.compile(gradient)
    for window in ((3, 2, 1), (2, 2, 0), (3, 1, 1), (5, 2, 2)):
        for _ in range(2):
            torch.testing.assert_close(compiled(x, *window), gradient(x, *window), rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-2 if dtype == torch.bfloat16 else 1e-5)
