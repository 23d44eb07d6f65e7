"""A causal language model of GPT-2's shape: learned positions, norm before each block, tied head, dropout."""
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from .workload import Workload


@dataclass
class Config:
    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50257
    positions: int = 1024
    dropout: float = 0.1


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, -1))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        return F.dropout(self.out(y.transpose(1, 2).reshape(batch, length, width)), self.dropout, self.training)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(nn.Linear(config.width, 4 * config.width), nn.GELU(approximate='tanh'),
                                 nn.Linear(4 * config.width, config.width), nn.Dropout(config.dropout))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT2(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.positions, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.positions(positions))
        return self.head(self.norm(self.blocks(x)))


def next_token_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def language_model(config, batch, length):
    tokens = torch.randint(config.vocabulary, (batch, length + 1))
    return Workload(GPT2(config), (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()), next_token_loss,
                    description=f'{config.layers} layers, width {config.width}, {batch} x {length} tokens')


def gpt2(batch=1, length=128):
    """GPT-2 small."""
    return language_model(Config(), batch, length)


def gpt2_tiny(batch=2, length=64):
    """The same in small, where calling ops costs more than computing them."""
    return language_model(Config(layers=4, width=64, heads=4, vocabulary=512, positions=64), batch, length)
