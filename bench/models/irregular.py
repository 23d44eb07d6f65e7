"""Programs whose calls differ from each other: in what they draw, in their sizes, in what is in their tensors. A compiler
that makes code for what it has seen is at its worst here."""
import copy
from dataclasses import dataclass
from typing import Callable

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Program:
    """A model with several sets of inputs, which its calls take in turn."""
    module: nn.Module
    inputs: list                     # of (args, kwargs)
    loss: Callable                   # (output, args) -> scalar
    trains: bool = True
    evaluates: bool = True

    def copy(self):
        return copy.deepcopy(self)

    def call(self, model, turn, train):
        """One call as a user makes it: for inference, or a step up to the optimizer."""
        args, kwargs = self.inputs[turn % len(self.inputs)]
        if not train:
            with torch.no_grad():
                return model(*args, **kwargs)
        self.module.zero_grad()
        self.loss(model(*args, **kwargs), args).backward()


def mean_square(output, args):
    return sum((part.float() ** 2).mean() for part in tensors_of(output) if part.requires_grad)


def tensors_of(output):
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        output = list(output.values())
    return [tensor for part in output for tensor in tensors_of(part)] if isinstance(output, (list, tuple)) else []


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class LayerDrop(nn.Module):
    """Each layer is left out now and then."""

    def __init__(self, layers, p, draw):
        super().__init__()
        self.layers = nn.ModuleList([Layer(32) for _ in range(layers)])
        self.head = nn.Linear(32, 8)
        self.p, self.draw = p, draw

    def forward(self, x):
        for layer in self.layers:
            if self.training and self.draw() < self.p:
                continue
            x = layer(x)
        return self.head(x)


def layer_drop():
    return Program(LayerDrop(12, 0.1, lambda: torch.rand([])), [((torch.randn(4, 16, 32),), {})], mean_square)


def layer_drop_item():
    return Program(LayerDrop(6, 0.3, lambda: torch.rand(1).item()), [((torch.randn(4, 16, 32),), {})], mean_square)


class Experts(nn.Module):
    """A mixture of experts that picks each expert's tokens by a mask."""

    def __init__(self, experts=4, width=32):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList([Layer(width) for _ in range(experts)])

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mask = chosen == number
            if mask.any():
                out[mask] = expert(x[mask]) * weights[mask, None]
        return out


def experts_by_masks():
    return Program(Experts(), [((torch.randn(64, 32),), {}) for _ in range(8)], mean_square)


class Encoder(nn.Module):
    def __init__(self, width=32, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(100, width)
        layer = nn.TransformerEncoderLayer(width, 4, 64, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 100)

    def forward(self, tokens):
        return self.head(self.layers(self.tokens(tokens)))


def many_lengths():
    """More lengths than anyone has code for."""
    return Program(Encoder(), [((torch.randint(100, (4, 5 + length)),), {}) for length in range(30)], mean_square)


class MessagePassing(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(3)])
        self.head = nn.Linear(width, 4)

    def forward(self, x, edges):
        source, target = edges
        for layer in self.layers:
            received = torch.zeros_like(x).index_add(0, target, x[source])
            x = torch.relu(layer(torch.cat([x, received], -1)))
        return self.head(x.mean(0))


def many_graphs():
    """Graphs of which no two have as many nodes and edges."""
    graphs = [((torch.randn(20 + i, 32), torch.randint(20 + i, (2, 60 + 3 * i))), {}) for i in range(30)]
    return Program(MessagePassing(), graphs, mean_square)


def gradient_penalty(output, args):
    gradient, = torch.autograd.grad(output.sum(), args[0], create_graph=True)
    return output.mean() + ((gradient.norm(2, dim=-1) - 1) ** 2).mean()


def double_backward():
    net = nn.Sequential(nn.Linear(32, 64), nn.Softplus(), nn.Linear(64, 64), nn.Softplus(), nn.Linear(64, 1))
    return Program(net, [((torch.randn(64, 32, requires_grad=True),), {})], gradient_penalty, evaluates=False)


ALL = (layer_drop, layer_drop_item, experts_by_masks, many_lengths, many_graphs, double_backward)
