"""A small U-Net: the image goes down two levels and up again, joined with what it was on each."""
import torch
from torch import nn
from torch.nn import functional as F

from .workload import Workload


def double_conv(channels_in, channels):
    return nn.Sequential(nn.Conv2d(channels_in, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.SiLU(),
                         nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(8, channels), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.level0 = double_conv(3, channels)
        self.level1 = double_conv(channels, 2 * channels)
        self.bottom = double_conv(2 * channels, 4 * channels)
        self.up1 = nn.ConvTranspose2d(4 * channels, 2 * channels, 2, stride=2)
        self.join1 = double_conv(4 * channels, 2 * channels)
        self.join0 = double_conv(3 * channels, channels)
        self.head = nn.Conv2d(channels, 3, 1)

    def forward(self, image):
        x0 = self.level0(image)
        x1 = self.level1(F.max_pool2d(x0, 2))
        x = self.bottom(F.avg_pool2d(x1, 2))
        x = self.join1(torch.cat([self.up1(x), x1], 1))
        x = F.interpolate(x, scale_factor=2, mode='bilinear', align_corners=False)
        return self.head(self.join0(torch.cat([x, x0], 1)))


def unet(batch=2, size=64):
    return Workload(UNet(), (torch.randn(batch, 3, size, size), torch.randn(batch, 3, size, size)), nn.MSELoss(),
                    description=f'batch and group norm, 2 levels, {batch} x 3 x {size} x {size}')
