"""Runs that are equal to the last bit where that is asked for, random numbers that are eager's, and curves of losses."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import smelt

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA')

MODES = ['default', 'reduce-overhead']


@pytest.fixture(autouse=True)
def fresh():
    smelt.reset()


@pytest.fixture
def deterministic(monkeypatch):
    monkeypatch.setenv('CUBLAS_WORKSPACE_CONFIG', ':4096:8')
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


class Net(nn.Module):
    """Embeddings, a convolution, norms, gathers and dropout: what adds up in some order."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.table, self.bags = nn.Embedding(50, 32), nn.EmbeddingBag(40, 32, mode='sum')
        self.conv, self.norm = nn.Conv1d(32, 32, 3, padding=1), nn.LayerNorm(32)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(32, 50)

    def forward(self, tokens):
        x = self.table(tokens) + self.bags(tokens % 40)[:, None]
        x = x + self.dropout(F.gelu(self.conv(x.transpose(1, 2)).transpose(1, 2)))
        return self.head(self.norm(x))


def trained(model, mode, steps=12, seed=0):
    """The losses and the parameters after some whole steps from the same state."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(tokens):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()
    if mode is not None:
        step = smelt.compile(step, mode=mode, options={'rollback': False})
    torch.manual_seed(seed)
    batches = [torch.randint(0, 50, (8, 24), device='cuda') for _ in range(steps)]
    losses = torch.stack([step(batch) for batch in batches])
    return losses, [p.detach().clone() for p in model.parameters()], torch.cuda.get_rng_state()


@pytest.mark.parametrize('mode', MODES)
def test_ten_trainings_are_equal(deterministic, mode):
    torch.manual_seed(0)
    model = Net(dropout=0.1).cuda()
    first = trained(model, mode)
    for _ in range(9):
        smelt.reset()
        losses, parameters, _ = trained(model, mode)
        assert torch.equal(losses, first[0])
        assert all(torch.equal(p, q) for p, q in zip(parameters, first[1]))


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('train', [False, True], ids=['inference', 'training'])
def test_ten_calls_are_equal(deterministic, mode, train):
    torch.manual_seed(0)
    model = Net().cuda().train(train)
    run, tokens = smelt.compile(model, mode=mode, options={'rollback': False}), torch.randint(0, 50, (8, 24), device='cuda')

    def call():
        out = run(tokens)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), list(model.parameters()))]
    call()  # the first is traced, and computed by PyTorch
    first = call()
    for _ in range(20):
        assert all(torch.equal(a, b) for a, b in zip(call(), first))


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
@pytest.mark.parametrize('sizes', [(64,), (33, 7), (1000, 130)])
def test_dropout_is_eagers(mode, dtype, sizes):
    def f(x):
        return F.dropout(F.dropout(x, 0.3) * 2, 0.5)
    run, x = smelt.compile(f, mode=mode), torch.randn(sizes, device='cuda', dtype=dtype)
    for seed in range(20):
        torch.manual_seed(seed)
        expected, after = f(x), torch.cuda.get_rng_state()
        torch.manual_seed(seed)
        assert torch.equal(run(x), expected)
        assert torch.equal(torch.cuda.get_rng_state(), after)


@pytest.mark.parametrize('mode', MODES)
def test_training_with_dropout_is_eagers(mode):
    torch.manual_seed(0)
    model = Net(dropout=0.2).cuda()
    losses, parameters, state = trained(model, mode, steps=30)
    expected, wanted, wanted_state = trained(model, None, steps=30)
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(state, wanted_state)


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('dtype, most', [(None, 1e-4), (torch.bfloat16, 1e-2), (torch.float16, 1e-3)], ids=['f32', 'bf16', 'f16'])
def test_curves_of_losses(mode, dtype, most):
    def curve(compiled):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
        scaler = torch.amp.GradScaler('cuda', enabled=dtype == torch.float16, init_scale=1024.0)

        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast('cuda', dtype=dtype or torch.bfloat16, enabled=dtype is not None):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()
        step = smelt.compile(step, mode=mode, options={'rollback': False}) if compiled else step
        generator, losses = torch.Generator().manual_seed(1), []
        for _ in range(100):
            x = torch.randn(32, 20, generator=generator).cuda()
            losses.append(step(x, x[:, :5].argmax(-1)))
            schedule.step()
        return torch.stack(losses).float()
    assert (curve(True) - curve(False)).abs().max() <= most
