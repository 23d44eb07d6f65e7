"""A residual convolutional network with batch normalization, 18 layers deep."""
import torch
from torch import nn
from torch.nn import functional as F

from .workload import Workload


class ResidualBlock(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                                          nn.BatchNorm2d(channels))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


class ResNet(nn.Module):
    def __init__(self, widths=(64, 128, 256, 512), blocks=2, classes=100):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 7, stride=2, padding=3, bias=False),
                                  nn.BatchNorm2d(widths[0]), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, stride=2, padding=1))
        stages, channels = [], widths[0]
        for i, width in enumerate(widths):
            for j in range(blocks):
                stages.append(ResidualBlock(channels, width, stride=2 if i and not j else 1))
                channels = width
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.stages(self.stem(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def resnet18(batch=4, size=96):
    return Workload(ResNet(), (torch.randn(batch, 3, size, size), torch.randint(100, (batch,))),
                    nn.CrossEntropyLoss(), description=f'batch norm, in-place ReLU, {batch} x 3 x {size} x {size}')
