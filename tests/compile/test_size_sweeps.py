"""Sweeps over sizes of whole models: two programs are for all sizes, and one each for sizes 0 and 1."""
import copy
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import smelt

SWEEP = list(range(2, 65))
random.Random(1).shuffle(SWEEP)
STAYS = {'rollback': False}  # what the clock says must not hide a program


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(after) for _ in range(2))
        self.shortcut = nn.Sequential()
        if stride > 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """The shape of ResNet-18: a stem with a pool, four groups of two blocks, an average and a layer."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        widths = [4, 4, 6, 8, 10]
        self.groups = nn.Sequential(*[
            nn.Sequential(Block(widths[i], widths[i + 1], 1 if i == 0 else 2), Block(widths[i + 1], widths[i + 1], 1))
            for i in range(4)])
        self.pool, self.head = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(widths[-1], 7)

    def forward(self, x):
        return self.head(torch.flatten(self.pool(self.groups(self.stem(x))), 1))


class Attention(nn.Module):
    def __init__(self, width, heads, is_causal):
        super().__init__()
        self.qkv, self.out, self.heads, self.is_causal = nn.Linear(width, 3 * width), nn.Linear(width, width), heads, is_causal

    def forward(self, x, mask=None):
        batch, length, width = x.size()
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.is_causal)
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads, is_causal):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = Attention(width, heads, is_causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, mask=None):
        x = x + self.attention(self.norms[0](x), mask)
        return x + self.mlp(self.norms[1](x))


class GPT(nn.Module):
    def __init__(self, words=40, width=16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(80, width)
        self.layers = nn.ModuleList(Layer(width, 2, True) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        _, length = tokens.shape
        assert length <= 80
        x = self.words(tokens) + self.places(torch.arange(0, length, dtype=torch.long, device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class BERT(nn.Module):
    """With padding: the mask says which tokens there are."""

    def __init__(self, words=40, width=16):
        super().__init__()
        self.words, self.places, self.kinds = nn.Embedding(words, width), nn.Embedding(80, width), nn.Embedding(2, width)
        self.register_buffer('position_ids', torch.arange(80).expand((1, -1)))
        self.layers = nn.ModuleList(Layer(width, 2, False) for _ in range(2))
        self.norm, self.pooler, self.head = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, 3)

    def forward(self, tokens, mask):
        shape = tokens.size()
        kinds = torch.zeros(shape, dtype=torch.long, device=tokens.device)
        x = self.norm(self.words(tokens) + self.kinds(kinds) + self.places(self.position_ids[:, :shape[1]]))
        wide = mask[:, None, None, :].expand(shape[0], 1, shape[1], shape[1])
        for layer in self.layers:
            x = layer(x, wide)
        mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        return self.head(torch.tanh(self.pooler(x[:, 0])) + mean)


class UNet(nn.Module):
    def __init__(self, upsample):
        super().__init__()
        widths = [3, 4, 6, 8]
        def convolutions(before, after):
            return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(),
                                 nn.Conv2d(after, after, 3, padding=1), nn.GroupNorm(2, after), nn.SiLU())
        self.downs = nn.ModuleList(convolutions(*pair) for pair in zip(widths, widths[1:]))
        self.middle = convolutions(8, 8)
        self.ups = nn.ModuleList(convolutions(8 + width, 8) for width in reversed(widths[1:]))
        self.rise = nn.ModuleList(nn.ConvTranspose2d(8, 8, 2, 2) for _ in widths[1:]) if upsample == 'transposed' else None
        self.upsample, self.head = upsample, nn.Conv2d(8, 2, 1)

    def forward(self, x):
        kept = []
        for down in self.downs:
            x = down(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for i, up in enumerate(self.ups):
            other = kept.pop()
            if self.rise is not None:
                x = self.rise[i](x)
            elif self.upsample == 'size':
                x = F.interpolate(x, size=other.shape[-2:], mode='bilinear', align_corners=False)
            else:
                x = F.interpolate(x, scale_factor=2, mode='nearest')
            x = up(torch.cat([x, other], 1))
        return self.head(x)


class GNN(nn.Module):
    """Messages along edges, of which each graph has others; degrees normalise."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 4)])

    def forward(self, x, edges):
        source, target = edges
        degree = torch.zeros(x.size(0)).scatter_add(0, target, torch.ones(edges.size(1))).clamp(min=1)
        for layer in self.layers:
            messages = layer(x)[source]
            x = torch.zeros(x.shape[0], messages.shape[1]).index_add(0, target, messages) / degree[:, None]
            x = F.elu(x)
        return x


class Recurrent(nn.Module):
    def __init__(self, kind=nn.LSTM, **settings):
        super().__init__()
        self.words, self.cells = nn.Embedding(20, 8), kind(8, 6, batch_first=True, **settings)
        self.head = nn.Linear(12 if settings.get('bidirectional') else 6, 3)

    def forward(self, tokens):
        found, _ = self.cells(self.words(tokens))
        return self.head(found[:, -1])


def tokens(batch, length):
    return torch.randint(20, (batch, length))


def padded(batch, length):
    lengths = torch.randint(1, length + 1, (batch,)) if batch > 0 and length > 0 else torch.zeros(batch, dtype=torch.long)
    return tokens(batch, length), torch.arange(length)[None] < lengths[:, None]


def graph(nodes, edges):
    return torch.randn(nodes, 8), torch.randint(nodes, (2, edges))


def mlp():
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 5))


# What is made, the arguments of one size, and whether sizes 0 and 1 are asked for too.
SWEEPS = {
    'mlp': (mlp, lambda n: (torch.randn(n, 12),), True),
    'resnet': (ResNet, lambda n: (torch.randn(n, 3, 48, 48),), True),
    'gpt_batches': (GPT, lambda n: (tokens(n, 6),), True),
    'gpt_lengths': (GPT, lambda n: (tokens(2, n),), True),
    'bert_batches': (BERT, lambda n: padded(n, 7), True),
    'bert_lengths': (BERT, lambda n: padded(3, n), False),
    'bert_both': (BERT, lambda n: padded(1 + n // 2 + n % 5, n), False),
    'unet_batches': (lambda: UNet('nearest'), lambda n: (torch.randn(n, 3, 16, 16),), True),
    'unet_extents': (lambda: UNet('nearest'), lambda n: (torch.randn(2, 3, 8 * (n % 13 + 2), 8 * (n % 7 + 3)),), False),
    'unet_sizes': (lambda: UNet('size'), lambda n: (torch.randn(2, 3, 8 * (n % 13 + 2), 8 * (n % 7 + 3)),), False),
    'unet_transposed': (lambda: UNet('transposed'), lambda n: (torch.randn(2, 3, 8 * (n % 13 + 2), 8 * (n % 7 + 3)),), False),
    'gnn_edges': (GNN, lambda n: graph(10, 3 * n), True),
    'gnn_both': (GNN, lambda n: graph(n, 2 * n + 1), False),
    'lstm_batches': (Recurrent, lambda n: (tokens(n, 5),), True),
    'lstm_deep': (lambda: Recurrent(num_layers=2, bidirectional=True), lambda n: (tokens(n, 5),), False),
    'gru_batches': (lambda: Recurrent(nn.GRU), lambda n: (tokens(n, 5),), False),
    'rnn_batches': (lambda: Recurrent(nn.RNN), lambda n: (tokens(n, 5),), False),
}

PICTURES = {'resnet', 'unet_batches', 'unet_extents', 'unet_sizes', 'unet_transposed'}


def outcome(run):
    try:
        return run(), None
    except Exception as error:
        return None, error


def agree(ours, theirs):
    (found, our_error), (wanted, their_error) = ours, theirs
    assert type(our_error) is type(their_error), our_error or their_error
    if their_error is None:
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


def sizes_of(name, also_small, step=1):
    """Pictures cost more than the rest: some of the sizes."""
    return SWEEP[:: 6 if name in PICTURES else step] + ([1, 0, 3, 1, 0] if also_small else [])


def check_programs(also_small):
    stats = smelt.stats()
    assert stats['segments'] <= (4 if also_small else 2), stats
    assert stats['graph_breaks'] == 0, stats


@pytest.mark.parametrize('backend', ['native', 'eager'])
@pytest.mark.parametrize('name', SWEEPS)
def test_inference(name, backend):
    make, arguments, also_small = SWEEPS[name]
    model = make().eval()
    compiled = smelt.compile(copy.deepcopy(model), backend=backend, options=STAYS)
    with torch.no_grad():
        for n in sizes_of(name, also_small):
            given = arguments(n)
            agree(outcome(lambda: compiled(*given)), outcome(lambda: model(*given)))
    check_programs(also_small)


def close_gradients(found, wanted):
    for ours, theirs in zip(found, wanted):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4, equal_nan=True, check_dtype=False)


def exact_gradients(step, model, given):
    """Where rounding has the last word (a relu of almost 0 passes a gradient on or not), either side of it may be eager's."""
    exact = copy.deepcopy(model).double()
    step(exact, exact, [x.double() if x.is_floating_point() else x for x in given])
    return [p.grad for p in exact.parameters()]


@pytest.mark.parametrize('name', SWEEPS)
def test_training(name):
    make, arguments, also_small = SWEEPS[name]
    model = make()
    twin = copy.deepcopy(model)
    compiled = smelt.compile(twin, options=STAYS)

    def step(call, parameters, given):
        parameters.zero_grad()
        result = call(*given)
        result.square().mean().backward()
        return result.detach()

    for n in sizes_of(name, also_small, 3):
        given = arguments(n)
        theirs = outcome(lambda: step(model, model, given))
        agree(outcome(lambda: step(compiled, twin, given)), theirs)
        found, wanted = ([p.grad for p in of.parameters()] for of in (twin, model))
        try:
            close_gradients(found, wanted)
        except AssertionError:
            close_gradients(found, exact_gradients(step, model, given))
        for p, q in zip(model.buffers(), twin.buffers()):
            torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-5, equal_nan=True)
    check_programs(also_small)
