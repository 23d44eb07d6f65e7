"""Plain feed-forward networks."""
import torch
from torch import nn

from .workload import Workload


class SimpleModel(nn.Module):
    """Two linear layers: about the least that anyone trains."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(128, 256)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(256, 10)

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x)))


def simple(batch=32):
    return Workload(SimpleModel(), (torch.randn(batch, 128), torch.randint(10, (batch,))), nn.CrossEntropyLoss(),
                    description=f'2 linear layers, batch {batch}')


class Perceptron(nn.Module):
    """Blocks of linear, layer norm, GELU and dropout."""

    def __init__(self, features, width, classes, depth, dropout):
        super().__init__()
        layers = []
        for i in range(depth):
            layers += [nn.Linear(features if i == 0 else width, width), nn.LayerNorm(width), nn.GELU(),
                       nn.Dropout(dropout)]
        self.hidden = nn.Sequential(*layers)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.hidden(x.flatten(1)))


def mlp(batch=64, width=512, depth=4):
    module = Perceptron(28 * 28, width, 10, depth, dropout=0.1)
    return Workload(module, (torch.randn(batch, 1, 28, 28), torch.randint(10, (batch,))), nn.CrossEntropyLoss(),
                    description=f'{depth} x {width} with layer norm and dropout, batch {batch}')
