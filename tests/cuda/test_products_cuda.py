"""Products whose rows are not multiples of 16 bytes, and vectors times matrices: as eager's, and with eager's strides."""
import pytest
import torch
import torch.nn.functional as F

import smelt

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA')


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    smelt.reset()


def randn(*sizes, **options):
    return torch.randn(*sizes, device='cuda', **options)


def relative(a, b):
    return ((a.float() - b.float()).norm() / b.float().norm()).item()


@pytest.mark.parametrize('mode', ['default', 'reduce-overhead'])
@pytest.mark.parametrize('classes', [8191, 8192, 40001])
def test_a_loss_over_many_classes(mode, classes):
    def loss(hidden, weight, target):
        return F.cross_entropy((hidden @ weight.t()).float(), target)

    hidden = (0.1 * randn(512, 512, dtype=torch.bfloat16)).requires_grad_()
    weight = (0.1 * randn(classes, 512, dtype=torch.bfloat16)).requires_grad_()
    target = torch.randint(0, classes, (512,), device='cuda')
    target[3] = -100
    run = smelt.compile(loss, mode=mode)
    expected = torch.autograd.grad(loss(hidden, weight, target), (hidden, weight))
    for _ in range(8):
        value = run(hidden, weight, target)
        torch.testing.assert_close(value, loss(hidden, weight, target), rtol=1e-4, atol=1e-4)
        for grad, wanted in zip(torch.autograd.grad(value, (hidden, weight)), expected):
            assert relative(grad, wanted) < 2e-2


def test_logits_that_are_returned_have_the_strides_of_eager():
    def logits(x, weight):
        y = F.linear(x, weight)
        return y, torch.relu(y)
    x, weight = randn(4, 256, 512, dtype=torch.bfloat16), randn(8191, 512, dtype=torch.bfloat16)
    with torch.no_grad():
        got, wanted = smelt.compile(logits)(x, weight), logits(x, weight)
    for a, b in zip(got, wanted):
        assert a.stride() == b.stride() and relative(a, b) < 1e-2


@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize('sizes', [(2048, 5632), (64, 33), (1000, 1)])
def test_one_vector_times_a_matrix(dtype, sizes):
    inner, outer = sizes

    def f(x, a, b):
        return F.silu(F.linear(x, a)) * F.linear(x, b)
    x, a, b = randn(1, inner, dtype=dtype), *(0.1 * randn(outer, inner, dtype=dtype) for _ in range(2))
    with torch.no_grad():
        assert relative(smelt.compile(f)(x, a, b), f(x, a, b)) < 1e-2
        column = randn(inner, 1, dtype=dtype)
        assert relative(smelt.compile(torch.mm)(a, column), a @ column) < 1e-2


def test_statistics_of_channels_that_lie_last():
    norm = torch.nn.BatchNorm2d(96).cuda()
    x = randn(16, 96, 28, 28).to(memory_format=torch.channels_last).requires_grad_()

    def f(x):
        return F.relu(norm(x)).square().mean()
    expected = torch.autograd.grad(f(x), (x, *norm.parameters()))
    for grad, wanted in zip(torch.autograd.grad(smelt.compile(f)(x), (x, *norm.parameters())), expected):
        assert relative(grad, wanted) < 1e-4
