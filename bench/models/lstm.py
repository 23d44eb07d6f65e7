"""A recurrent classifier of sequences."""
import torch
from torch import nn

from .workload import Workload


class SequenceClassifier(nn.Module):
    def __init__(self, symbols, width, classes, layers):
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, dropout=0.1)
        self.head = nn.Linear(width, classes)

    def forward(self, symbols):
        states, _ = self.lstm(self.embedding(symbols))
        return self.head(states[:, -1])


def lstm(batch=16, length=32, width=128, layers=2):
    return Workload(SequenceClassifier(256, width, 8, layers),
                    (torch.randint(256, (batch, length)), torch.randint(8, (batch,))), nn.CrossEntropyLoss(),
                    description=f'{layers} layers, width {width}, {batch} x {length} symbols')
