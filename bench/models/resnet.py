"""Residual convolutional networks with batch normalization: 18 layers, and 50 with bottlenecks."""
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


class Bottleneck(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        inside = channels // 4
        self.conv1, self.norm1 = nn.Conv2d(channels_in, inside, 1, bias=False), nn.BatchNorm2d(inside)
        self.conv2 = nn.Conv2d(inside, inside, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(inside)
        self.conv3, self.norm3 = nn.Conv2d(inside, channels, 1, bias=False), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                                          nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        y += x if self.shortcut is None else self.shortcut(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self, widths=(64, 128, 256, 512), depths=(2, 2, 2, 2), block=ResidualBlock, classes=100):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
                                  nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, stride=2, padding=1))
        stages, channels = [], 64
        for i, (width, depth) in enumerate(zip(widths, depths)):
            for j in range(depth):
                stages.append(block(channels, width, stride=2 if i and not j else 1))
                channels = width
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.stages(self.stem(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def resnet18(batch=4, size=96):
    return Workload(ResNet(), (torch.randn(batch, 3, size, size), torch.randint(100, (batch,))),
                    nn.CrossEntropyLoss(), description=f'batch norm, in-place ReLU, {batch} x 3 x {size} x {size}')


def resnet50(batch=2, size=64):
    module = ResNet((256, 512, 1024, 2048), (3, 4, 6, 3), Bottleneck, classes=1000)
    return Workload(module, (torch.randn(batch, 3, size, size), torch.randint(1000, (batch,))), nn.CrossEntropyLoss(),
                    description=f'ResNet-50, {batch} x 3 x {size} x {size}')
