"""What is written down of CUDA's own kernels is what they give: dtypes, sizes, strides."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import smelt

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA')


def assert_same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride() and a.device == b.device
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def heads(*sizes, dtype, exchanged):
    batch, count, length, width = sizes
    if not exchanged:
        return torch.randn(*sizes, device='cuda', dtype=dtype, requires_grad=True)
    return torch.randn(batch, length, count, width, device='cuda', dtype=dtype).transpose(1, 2).requires_grad_()


@pytest.mark.parametrize('exchanged', [False, True])
@pytest.mark.parametrize('lengths', [(16, 16), (40, 64)])
@pytest.mark.parametrize('backend, dtype', [
    (SDPBackend.FLASH_ATTENTION, torch.float16), (SDPBackend.FLASH_ATTENTION, torch.bfloat16),
    (SDPBackend.EFFICIENT_ATTENTION, torch.float32), (SDPBackend.EFFICIENT_ATTENTION, torch.bfloat16),
    (SDPBackend.CUDNN_ATTENTION, torch.bfloat16)])
def test_attention(backend, dtype, lengths, exchanged):
    def attend(q, k, v):
        with sdpa_kernel(backend):
            y = F.scaled_dot_product_attention(q, k, v)
        return y.detach(), *torch.autograd.grad(y.float().square().sum(), (q, k, v))
    q = heads(2, 4, lengths[0], 64, dtype=dtype, exchanged=exchanged)
    k, v = (heads(2, 4, lengths[1], 64, dtype=dtype, exchanged=exchanged) for _ in range(2))
    expected = attend(q, k, v)
    got = smelt.record(attend, q, k, v).run(q, k, v)
    assert_same(got[0], expected[0])
    for a, b in zip(got[1:], expected[1:]):
        assert a.shape == b.shape and a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize('mask', [(1, 1, 40, 40), (2, 4, 40, 40)])
def test_attention_with_a_mask(mask):
    q, k, v = (heads(2, 4, 40, 64, dtype=torch.float32, exchanged=True) for _ in range(3))
    bias = torch.randn(*mask, device='cuda', requires_grad=True)

    def attend(q, k, v, bias):
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return y.detach(), *torch.autograd.grad(y.square().sum(), (q, k, v, bias))
    expected = attend(q, k, v, bias)
    for a, b in zip(smelt.record(attend, q, k, v, bias).run(q, k, v, bias), expected):
        assert a.shape == b.shape and a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize('make', [nn.LSTMCell, nn.GRUCell])
def test_a_cell(make):
    cell = make(8, 16).cuda()
    x, h = torch.randn(3, 8, device='cuda'), torch.randn(3, 16, device='cuda')
    state = (h, torch.randn(3, 16, device='cuda')) if make is nn.LSTMCell else h

    def step(x):
        y = cell(x, state)
        y = y[0] + y[1] if isinstance(y, tuple) else y
        return y.detach(), *torch.autograd.grad(y.square().sum(), list(cell.parameters()))
    for a, b in zip(smelt.record(step, x).run(x), step(x)):
        assert_same(a, b)


@pytest.mark.parametrize('format', [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize('train', [False, True])
def test_batch_norm(format, dtype, train):
    norm = nn.BatchNorm2d(8).cuda().train(train)
    x = torch.randn(4, 8, 6, 6, device='cuda', dtype=dtype).to(memory_format=format).requires_grad_()

    def step(x):
        y = norm(x)
        return y.detach(), *torch.autograd.grad(y.float().square().sum(), (x, *norm.parameters()))
    before = [b.clone() for b in norm.buffers()]
    expected = step(x)
    for b, value in zip(norm.buffers(), before):
        b.copy_(value)
    for a, b in zip(smelt.record(step, x).run(x), expected):
        assert a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize('kernel', [1, 3])
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_gradients_of_a_convolution_with_the_channels_last(kernel, dtype):
    x = torch.randn(4, 16, 8, 8, device='cuda', dtype=dtype).to(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(32, 16, kernel, kernel, device='cuda', dtype=dtype, requires_grad=True)

    def step(x, weight):
        y = F.conv2d(x, weight)
        return y.detach(), *torch.autograd.grad(y.float().square().sum(), (x, weight))
    for a, b in zip(smelt.record(step, x, weight).run(x, weight), step(x, weight)):
        assert a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)


def test_cuda_without_an_index_is_the_current_device():
    def draw():
        return torch.rand(3, device='cuda'), torch.zeros(2, device='cuda'), torch.arange(4, device='cuda')
    torch.manual_seed(1)
    expected = draw()
    torch.manual_seed(1)
    for a, b in zip(smelt.record(draw).run(), expected):
        assert_same(a, b)
