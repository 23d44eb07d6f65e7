"""smelt.compile on CUDA: inference, training of a compiled model, whole steps."""
import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import smelt

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA')


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    smelt.reset()


def make_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)).cuda()


def batch(i):
    generator = torch.Generator().manual_seed(i)
    return torch.randn(8, 16, generator=generator).cuda(), torch.randint(0, 4, (8,), generator=generator).cuda()


def assert_same(model, other):
    for a, b in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_inference():
    model = make_model().eval()
    compiled = smelt.compile(model)
    with torch.no_grad():
        for i in range(3):
            torch.testing.assert_close(compiled(batch(i)[0]), model(batch(i)[0]))


def test_a_compiled_model_trains():
    plain = make_model()
    model = copy.deepcopy(plain)
    compiled = smelt.compile(model)
    for run, module in ((plain, plain), (compiled, model)):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        for i in range(5):
            x, y = batch(i)
            optimizer.zero_grad()
            F.cross_entropy(run(x), y).backward()
            optimizer.step()
    assert_same(model, plain)


@pytest.mark.parametrize('make_optimizer', [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: torch.optim.Adam(p, lr=0.01),
    lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False),
    lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    lambda p: torch.optim.Adam(p, lr=0.01, capturable=True)])
def test_a_whole_step(make_optimizer):
    def make_step(model, optimizer):
        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss
        return step
    plain, model = make_model(), make_model()
    expected = make_step(plain, make_optimizer(plain.parameters()))
    compiled = smelt.compile(make_step(model, make_optimizer(model.parameters())))
    for i in range(6):
        torch.testing.assert_close(compiled(*batch(i)), expected(*batch(i)), rtol=1e-4, atol=1e-5)
        assert_same(model, plain)


@pytest.mark.parametrize('options', [{}, {'fused': True}, {'foreach': True}, {'capturable': True}])
def test_a_schedule_compiles_nothing_again(options):
    def make_step(model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **options)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss
        return step
    plain, model = make_model(), make_model()
    expected, compiled = make_step(plain), smelt.compile(make_step(model))
    smelt.reset()
    for i in range(8):
        torch.testing.assert_close(compiled(*batch(i)), expected(*batch(i)), rtol=1e-4, atol=1e-5)
        assert_same(model, plain)
    assert smelt.stats()['recompiles'] <= 2


def test_gradient_scaler_and_autocast():
    def make_step(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler('cuda', init_scale=2.0 ** 24)

        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast('cuda', dtype=torch.float16):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss
        return step
    plain, model = make_model(), make_model()
    expected, compiled = make_step(plain), smelt.compile(make_step(model))
    for i in range(8):
        torch.testing.assert_close(compiled(*batch(i)), expected(*batch(i)), rtol=1e-3, atol=1e-3)
        assert_same(model, plain)


def test_a_branch_on_the_loss():
    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            rate = 0.3 if loss.item() > 1.4 else 0.1
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(p.grad, alpha=rate)
            return loss.item(), rate
        return step
    plain, model = make_model(), make_model()
    expected, compiled = make_step(plain), smelt.compile(make_step(model))
    for i in range(8):
        (loss, rate), (wanted, wanted_rate) = compiled(*batch(i)), expected(*batch(i))
        assert rate == wanted_rate and abs(loss - wanted) < 1e-4
        assert_same(model, plain)
