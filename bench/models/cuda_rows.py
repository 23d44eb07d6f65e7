"""The rows of `./dev bench cuda`: each gives what is compiled, and the step around it.

A row is a function that makes a `Row`. Models come from torchvision and transformers where these are installed, and
from this folder where they are not (`Row.source` says which).
"""
from dataclasses import dataclass, field
from typing import Callable

import torch
from torch import nn
from torch.nn import functional as F

from .gpt2 import GPT2, Config, next_token_loss
from .resnet import Bottleneck, ResNet


@dataclass
class Row:
    target: object               # what "model compiled" compiles: a module, a function, or a list of functions
    wrap: Callable               # target -> step(); "whole step" compiles its result
    state: list = field(default_factory=list)  # tensors that a step changes, to compare
    source: str = 'own'


def randn(*sizes, dtype=torch.float32, **options):
    return torch.randn(*sizes, device='cuda', dtype=dtype, **options)


def without_gradients(step):
    def run():
        with torch.no_grad():
            return step()
    return run


# The first table of the anchors.

class SimpleModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.relu, self.fc2 = nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10)

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x)))


def simple_step():
    model = SimpleModel().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = randn(32, 128), torch.randint(0, 10, (32,), device='cuda')

    def wrap(model):
        def step():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss
        return step
    return Row(model, wrap, list(model.parameters()))


def evaluate_features():
    features, weights = randn(64, 128), randn(128)

    def evaluate(features, weights):
        return torch.relu(torch.mm(features, weights.unsqueeze(1))).squeeze()
    return Row(evaluate, lambda f: lambda: f(features, weights))


def norm_chain():
    x, r, w, b = randn(8192, 4096), randn(8192, 4096), randn(4096), randn(4096)

    def chain(x, r, w, b):
        return F.gelu(F.layer_norm(x + r, (4096,), w, b)) * torch.sigmoid(x)
    return Row(chain, lambda f: lambda: f(x, r, w, b))


def softmax():
    x = randn(16384, 8192)
    return Row(lambda x: torch.softmax(x * 0.5 + 1, -1), lambda f: lambda: f(x))


def make_resnet50():
    try:
        import torchvision
        return torchvision.models.resnet50(weights=None).cuda(), 'torchvision'
    except ImportError:
        return ResNet((256, 512, 1024, 2048), (3, 4, 6, 3), Bottleneck, classes=1000).cuda(), 'own'


def resnet50_inference():
    (model, source), x = make_resnet50(), randn(32, 3, 224, 224)
    model.eval()

    def wrap(model):
        def step():
            with torch.no_grad(), torch.autocast('cuda', torch.bfloat16):
                return model(x)
        return step
    return Row(model, wrap, source=source)


def resnet50_training():
    (model, source), x = make_resnet50(), randn(32, 3, 224, 224)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def wrap(model):
        def step():
            optimizer.zero_grad()
            output = model(x)
            output.float().sum().backward()
            optimizer.step()
        return step
    return Row(model, wrap, list(model.parameters()), source)


class OwnGPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = GPT2(Config(dropout=0.0))

    def forward(self, tokens, labels=None):
        logits = self.model(tokens)
        return logits if labels is None else next_token_loss(logits[:, :-1].float(), labels[:, 1:])


def make_gpt2():
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
        config = GPT2Config(use_cache=False, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
        return GPT2LMHeadModel(config).cuda(), 'transformers'
    except ImportError:
        return OwnGPT2().cuda(), 'own'


def gpt2_inference():
    (model, source), tokens = make_gpt2(), torch.randint(0, 50257, (8, 512), device='cuda')
    model.eval()

    def wrap(model):
        def step():
            with torch.no_grad(), torch.autocast('cuda', torch.bfloat16):
                output = model(tokens)
                return output if source == 'own' else output.logits
        return step
    return Row(model, wrap, source=source)


def gpt2_training():
    (model, source), tokens = make_gpt2(), torch.randint(0, 50257, (8, 512), device='cuda')
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def wrap(model):
        def step():
            optimizer.zero_grad()
            with torch.autocast('cuda', torch.bfloat16):
                output = model(tokens, labels=tokens)
                loss = output if source == 'own' else output.loss
            loss.backward()
            optimizer.step()
        return step
    return Row(model, wrap, list(model.parameters()), source)


# The second table.

class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (x.float() * scale).to(x.dtype) * self.weight


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, width=2048, heads=32, kv_heads=8, inner=5632):
        super().__init__()
        self.heads, self.kv_heads, self.head_width = heads, kv_heads, width // heads
        kv_width = kv_heads * self.head_width
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, out, bias=False) for out in (width, kv_width, kv_width))
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin, cached_k=None, cached_v=None, position=None, mask=None):
        batch, length, _ = x.shape
        y = self.norm1(x)
        q = self.q(y).view(batch, length, self.heads, self.head_width).transpose(1, 2)
        k = self.k(y).view(batch, length, self.kv_heads, self.head_width).transpose(1, 2)
        v = self.v(y).view(batch, length, self.kv_heads, self.head_width).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if cached_k is not None:
            cached_k.index_copy_(2, position, k)
            cached_v.index_copy_(2, position, v)
            k, v = cached_k, cached_v
        groups = self.heads // self.kv_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=cached_k is None)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.blocks = nn.ModuleList(LlamaBlock() for _ in range(layers))
        self.head = nn.Linear(2048, 32000, bias=False)

    def forward(self, x, cos, sin, caches=None, position=None, mask=None):
        for i, block in enumerate(self.blocks):
            x = block(x, cos, sin, *(caches[i] if caches else (None, None)), position, mask)
        return self.head(x)


def llama_forward():
    model = Llama(4).cuda().bfloat16().eval()
    x, rotation = randn(4, 1024, 2048, dtype=torch.bfloat16), randn(1024, 64, dtype=torch.bfloat16)
    return Row(model, lambda f: without_gradients(lambda: f(x, rotation, rotation)))


def llama_decode():
    model = Llama(8).cuda().bfloat16().eval()
    x, rotation = randn(1, 1, 2048, dtype=torch.bfloat16), randn(1, 64, dtype=torch.bfloat16)
    caches = [tuple(torch.zeros(1, 8, 1024, 64, device='cuda', dtype=torch.bfloat16) for _ in range(2))
              for _ in range(8)]
    position = torch.tensor([17], device='cuda')
    mask = (torch.arange(1024, device='cuda') <= 17)[None, None, None]
    return Row(model, lambda f: without_gradients(lambda: f(x, rotation, rotation, caches, position, mask)),
               [cache for pair in caches for cache in pair])


class OwnViT(nn.Module):
    def __init__(self, width=768, heads=12, layers=12):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token, self.positions = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.zeros(1, 197, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, 'gelu', 1e-6, True, True)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width, 1e-6), enable_nested_tensor=False)
        self.head = nn.Linear(width, 1000)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.positions
        return self.head(self.encoder(x)[:, 0])


def vit():
    try:
        import torchvision
        model, source = torchvision.models.vit_b_16(weights=None), 'torchvision'
    except ImportError:
        model, source = OwnViT(), 'own'
    model, x = model.cuda().bfloat16().eval(), randn(32, 3, 224, 224, dtype=torch.bfloat16)
    return Row(model, lambda f: without_gradients(lambda: f(x)), source=source)


class UNetBlock(nn.Module):
    def __init__(self, channels=320):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, channels), nn.GroupNorm(32, channels)
        self.conv1, self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1), nn.Conv2d(channels, channels, 3, 1, 1)
        self.time = nn.Linear(1280, channels)

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(y)))


def unet_block():
    model = UNetBlock().cuda().bfloat16().eval()
    x, time = randn(8, 320, 64, 64, dtype=torch.bfloat16), randn(8, 1280, dtype=torch.bfloat16)
    return Row(model, lambda f: without_gradients(lambda: f(x, time)))


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(10000, 64, mode='sum') for _ in range(8))
        self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(64 + 36, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, x, indices):
        z = torch.stack([self.bottom(x)] + [table(indices[k]) for k, table in enumerate(self.tables)], 1)
        products = z @ z.transpose(1, 2)
        row, column = torch.tril_indices(9, 9, -1, device=z.device)
        return self.top(torch.cat([z[:, 0], products[:, row, column]], 1)).squeeze(1)


def dlrm_step():
    model = DLRM().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = randn(2048, 13), torch.rand(2048, device='cuda')
    indices = torch.randint(0, 10000, (8, 2048, 4), device='cuda')

    def wrap(model):
        def step():
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(x, indices), y).backward()
            optimizer.step()
        return step
    return Row(model, wrap, list(model.parameters()))


def adamw_clip():
    sizes = [(768, 768), (768,), (3072, 768)] * 50
    parameters = [nn.Parameter(randn(*size)) for size in sizes]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)

    def step():
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    return Row(step, lambda f: lambda: f(), parameters)


def cross_entropy():
    hidden = randn(4096, 768, dtype=torch.bfloat16, requires_grad=True)
    weight = randn(50257, 768, dtype=torch.bfloat16, requires_grad=True)
    target = torch.randint(0, 50257, (4096,), device='cuda')

    def loss(hidden, weight, target):
        return F.cross_entropy((hidden @ weight.t()).float(), target)

    def wrap(loss):
        def step():
            hidden.grad = weight.grad = None
            value = loss(hidden, weight, target)
            value.backward()
            return value.detach(), hidden.grad, weight.grad
        return step
    return Row(loss, wrap)


def resnet50_channels_last():
    (model, source), x = make_resnet50(), randn(64, 3, 224, 224).to(memory_format=torch.channels_last)
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    y = torch.randint(0, 1000, (64,), device='cuda')

    def wrap(model):
        def step():
            optimizer.zero_grad()
            with torch.autocast('cuda', torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        return step
    return Row(model, wrap, list(model.parameters()), source)


def small_functions():
    a, b = randn(64, 64), randn(64, 64)
    functions = [lambda a, b: torch.relu(a @ b), lambda a, b: (a + b).sum(), lambda a, b: F.softmax(a, -1) * b,
                 lambda a, b: F.layer_norm(a, (64,)) + b, lambda a, b: a.t().contiguous() + b,
                 lambda a, b: torch.cat([a, b]).mean(0), lambda a, b: F.gelu(a) * torch.sigmoid(b),
                 lambda a, b: a[:, ::2].exp(), lambda a, b: (a > b).float().mean(),
                 lambda a, b: torch.where(a > 0, a, b).argmax(-1), lambda a, b: a.cumsum(0),
                 lambda a, b: (a - a.mean()) / (a.std() + 1e-5)]
    return Row(functions, lambda fs: lambda: [f(a, b) for f in fs])


ALL = [simple_step, evaluate_features, norm_chain, softmax, resnet50_inference, resnet50_training, gpt2_inference,
       gpt2_training, llama_forward, llama_decode, vit, unet_block, dlrm_step, adamw_clip, cross_entropy,
       resnet50_channels_last, small_functions]
