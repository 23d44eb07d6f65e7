"""A recommendation model of DLRM's shape: bags of embeddings, their pairwise products, two perceptrons."""
import torch
from torch import nn
from torch.nn import functional as F

from .workload import Workload


def perceptron(*widths):
    layers = []
    for features, width in zip(widths, widths[1:]):
        layers += [nn.Linear(features, width), nn.ReLU()]
    return nn.Sequential(*layers)


class Recommender(nn.Module):
    def __init__(self, tables, rows, width, dense):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode='sum') for _ in range(tables))
        self.bottom = perceptron(dense, 64, width)
        self.top = nn.Sequential(perceptron(width + tables * (tables + 1) // 2, 128, 64), nn.Linear(64, 1))
        self.register_buffer('pairs', torch.tril_indices(tables + 1, tables + 1, offset=-1))

    def forward(self, dense, sparse):
        bottom = self.bottom(dense)
        features = torch.stack([bottom, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], 1)
        products = torch.bmm(features, features.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([bottom, products], 1)).squeeze(1)


def dlrm(batch=64, tables=8, rows=10000, width=32, per_bag=4):
    inputs = (torch.randn(batch, 13), torch.randint(rows, (batch, tables, per_bag)), torch.rand(batch).round())
    return Workload(Recommender(tables, rows, width, dense=13), inputs, F.binary_cross_entropy_with_logits,
                    description=f'{tables} embedding bags of {rows} rows, batch {batch}')
