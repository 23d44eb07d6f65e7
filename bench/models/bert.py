"""An encoder of BERT's shape: embeddings of tokens, positions and segments, norm after each block, masked attention."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from .workload import Workload


class SelfAttention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def split(self, x):
        return x.view(*x.shape[:-1], self.heads, self.size).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.size)
        weights = self.dropout(F.softmax(scores + mask, dim=-1))
        return torch.matmul(weights, v).permute(0, 2, 1, 3).contiguous().view(x.shape)


class Layer(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.attention = SelfAttention(width, heads, dropout)
        self.output = nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        x = self.norm1(x + self.dropout(self.output(self.attention(x, mask))))
        return self.norm2(x + self.dropout(self.narrow(F.gelu(self.wide(x)))))


class Bert(nn.Module):
    def __init__(self, layers=12, width=768, heads=12, vocabulary=30522, positions=512, dropout=0.1, classes=2):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width, padding_idx=0), nn.Embedding(positions, width)
        self.segments = nn.Embedding(2, width)
        self.norm, self.dropout = nn.LayerNorm(width, eps=1e-12), nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(width, heads, dropout) for _ in range(layers))
        self.pooler, self.head = nn.Linear(width, width), nn.Linear(width, classes)

    def forward(self, tokens, mask=None, segments=None):
        if segments is None:
            segments = torch.zeros_like(tokens)
        if mask is None:
            mask = torch.ones(tokens.shape, device=tokens.device)
        mask = (1.0 - mask[:, None, None, :]) * torch.finfo(torch.float32).min
        positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        x = self.dropout(self.norm(self.tokens(tokens) + self.positions(positions) + self.segments(segments)))
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(torch.tanh(self.pooler(x[:, 0])))


def bert_base(batch=2, length=64):
    return Workload(Bert(), (torch.randint(1, 30522, (batch, length)), torch.randint(2, (batch,))),
                    nn.CrossEntropyLoss(), description=f'BERT-base, {batch} x {length} tokens')
