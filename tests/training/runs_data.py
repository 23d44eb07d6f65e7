"""Small data and models that several runs share."""

import torch
import torch.nn.functional as F
from torch import nn


def points(steps, rows=16, width=8, classes=4):
    """Batches of points with a class."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(rows, width, generator=generator)
        yield x, (x[:, :classes] + 0.1 * torch.randn(rows, classes, generator=generator)).argmax(1)


def values(steps, rows=16, width=8, dtype=torch.float32):
    """Batches of points with a number."""
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        x = torch.randn(rows, width, generator=generator, dtype=dtype)
        yield x, x[:, :3].sin().sum(1, keepdim=True)


def images(steps, rows=4, channels=3, size=8, classes=4):
    generator = torch.Generator().manual_seed(3)
    for _ in range(steps):
        x = torch.randn(rows, channels, size, size, generator=generator)
        yield x, torch.randint(classes, (rows,), generator=generator)


def tokens(steps, rows=4, length=10, vocabulary=20):
    generator = torch.Generator().manual_seed(4)
    for _ in range(steps):
        yield (torch.randint(vocabulary, (rows, length), generator=generator),)


def mlp(*widths, act=nn.Tanh):
    layers = []
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        layers += [nn.Linear(a, b)] + ([act()] if i < len(widths) - 2 else [])
    return nn.Sequential(*layers)


def stepper(model, optimizer, loss_of=F.cross_entropy):
    """The step of most tutorials."""

    def train_step(x, y):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


def classifier(t, net, optimizer, batches, loss_of=F.cross_entropy):
    t.train(t.step(stepper(t.model(net), optimizer, loss_of)), batches, net, optimizer)
