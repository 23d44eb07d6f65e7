"""Models that look at images."""

import torch
import torch.nn.functional as F
from runs_data import classifier, images
from torch import nn


def cnn_batch_norm_dropout(t):
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Dropout2d(0.1), nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, 4))  # fmt: skip
    classifier(t, net, torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4), images(12))


def cnn_group_norm(t):
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.SiLU(), nn.AvgPool2d(2),
                        nn.Conv2d(8, 8, 3, groups=8), nn.InstanceNorm2d(8, affine=True), nn.Hardswish(),
                        nn.Flatten(), nn.LazyLinear(4))  # fmt: skip
    net(torch.randn(2, 3, 8, 8))
    classifier(t, net, torch.optim.AdamW(net.parameters(), lr=1e-3, eps=1e-4), images(10))


class Bottleneck(nn.Module):
    def __init__(self, width, out, stride=1):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width, out // 2, 1, bias=False), nn.BatchNorm2d(out // 2), nn.ReLU(inplace=True),
                                  nn.Conv2d(out // 2, out // 2, 3, stride, 1, bias=False), nn.BatchNorm2d(out // 2),
                                  nn.ReLU(inplace=True), nn.Conv2d(out // 2, out, 1, bias=False), nn.BatchNorm2d(out))  # fmt: skip
        self.shortcut = None
        if stride != 1 or width != out:
            self.shortcut = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        identity = x if self.shortcut is None else self.shortcut(x)
        out = self.body(x)
        out += identity
        return self.relu(out)


def resnet_with_inplace_relu(t):
    net = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
                        Bottleneck(8, 16), Bottleneck(16, 16), Bottleneck(16, 32, 2), nn.AdaptiveAvgPool2d(1),
                        nn.Flatten(), nn.Linear(32, 4))  # fmt: skip
    classifier(t, net, torch.optim.SGD(net.parameters(), lr=0.01), images(8, rows=8, size=16))


def autoencoder_convolutional(t):
    net = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.LeakyReLU(0.1), nn.ConvTranspose2d(8, 8, 2, 2), nn.ELU(),
                        nn.Conv2d(8, 3, 1), nn.Sigmoid())  # fmt: skip
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    classifier(t, net, optimizer, ((x.sigmoid(), x.sigmoid()) for x, _ in images(10)), F.binary_cross_entropy)


class TinyVit(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.pos = nn.Parameter(torch.randn(1, 5, width) * 0.02)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.pos
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.mlp(self.norm2(x))
        return self.head(x[:, 0])


def vit_label_smoothing(t):
    net = TinyVit()
    classifier(t, net, torch.optim.AdamW(net.parameters(), lr=1e-3, eps=1e-4), images(10), nn.CrossEntropyLoss(label_smoothing=0.1))


class Block(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(True))

    def forward(self, x):
        return self.body(x)


class SmallUnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.middle = Block(3, 8), Block(8, 16), Block(16, 16)
        self.up2, self.up1 = Block(32, 8), Block(16, 8)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        c = self.up2(torch.cat([F.interpolate(c, scale_factor=2, mode="bilinear", align_corners=False), b], 1))
        c = self.up1(torch.cat([F.interpolate(c, size=a.shape[-2:], mode="nearest"), a], 1))
        return self.head(c)


def unet_dice(t):
    net = SmallUnet()

    def dice(logits, y):
        target = F.one_hot((torch.arange(64).view(1, 8, 8) + y.view(-1, 1, 1)) % 2, 2).permute(0, 3, 1, 2).float()
        p = logits.softmax(1)
        overlap = 2 * (p * target).sum((2, 3)) + 1
        return 1 - (overlap / (p.sum((2, 3)) + target.sum((2, 3)) + 1)).mean()

    classifier(t, net, torch.optim.SGD(net.parameters(), lr=0.05), images(8), dice)


def dcgan_two_optimizers(t):
    make = nn.Sequential(nn.ConvTranspose2d(8, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
                         nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False), nn.Tanh())  # fmt: skip
    judge = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(8, 1, 4), nn.Sigmoid())
    generator, critic = t.model(make), t.model(judge)
    opt_g = torch.optim.Adam(make.parameters(), lr=2e-4, betas=(0.5, 0.999), eps=1e-4)
    opt_d = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999), eps=1e-4)
    criterion = nn.BCELoss()

    def train_step(real, _):
        b = real.size(0)
        judge.zero_grad()
        label = torch.full((b,), 1.0)
        err_real = criterion(critic(real).view(-1), label)
        err_real.backward()
        fake = generator(torch.randn(b, 8, 1, 1))
        label.fill_(0.0)
        err_fake = criterion(critic(fake.detach()).view(-1), label)
        err_fake.backward()
        opt_d.step()
        make.zero_grad()
        label.fill_(1.0)
        err_g = criterion(critic(fake).view(-1), label)
        err_g.backward()
        opt_g.step()
        return err_real.item() + err_fake.item(), err_g.item()

    t.train(t.step(train_step), images(10), make, judge, opt_g, opt_d)


RUNS = (cnn_batch_norm_dropout, cnn_group_norm, resnet_with_inplace_relu, autoencoder_convolutional,
        vit_label_smoothing, unet_dice, dcgan_two_optimizers)  # fmt: skip
