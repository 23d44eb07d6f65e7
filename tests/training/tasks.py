"""What people train, in small: each task is made with a seed and has a step that returns its loss.

The parts of a task that form (a) compiles go through `self.compile`: models, or functions that compute a loss. Form (b)
compiles `step`."""

import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.append(str(pathlib.Path(__file__).parents[2] / "bench"))
from models.dlrm import Recommender  # noqa: E402
from models.gpt2 import GPT2, Config, next_token_loss  # noqa: E402
from models.lstm import SequenceClassifier  # noqa: E402
from models.resnet import ResidualBlock, ResNet  # noqa: E402
from models.unet import UNet  # noqa: E402
from models.vit import VisionTransformer  # noqa: E402


class Task:
    steps = 100

    def __init__(self, compile):
        self.compile = compile
        self.make()

    def make(self):
        self.module = self.model()
        self.call = self.compile(self.module)
        self.optimizer = self.optimize(self.module.parameters())

    def optimize(self, parameters):
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

    def step(self, *batch):
        self.optimizer.zero_grad()
        loss = self.loss(*batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def loss(self, x, target):
        return F.cross_entropy(self.call(x), target)


class Mlp(Task):
    def model(self):
        return nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 5))

    def batch(self):
        return torch.randn(16, 12), torch.randint(5, (16,))


class SimpleModel(Mlp):
    def model(self):
        return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))

    def optimize(self, parameters):
        return torch.optim.Adam(parameters, lr=1e-3)


class LabelSmoothing(Mlp):
    def loss(self, x, target):
        return F.cross_entropy(self.call(x), target, label_smoothing=0.1, reduction="sum") / len(x)


class ResNet18(Task):
    steps = 30

    def model(self):
        return ResNet((8, 16), (2, 2), ResidualBlock, classes=5)

    def optimize(self, parameters):
        return torch.optim.SGD(parameters, lr=1e-3)  # at a larger one eager itself, changed by one bit, is elsewhere after 20 steps

    def batch(self):
        return torch.randn(8, 3, 32, 32), torch.randint(5, (8,))


class LanguageModel(Task):
    steps = 40

    def model(self):
        return GPT2(Config(layers=2, width=32, heads=4, vocabulary=64, positions=16))

    def optimize(self, parameters):
        return torch.optim.AdamW(parameters, lr=1e-3, eps=1e-4)

    def batch(self):
        tokens = torch.randint(64, (4, 17))
        return tokens[:, :-1], tokens[:, 1:]

    def loss(self, tokens, targets):
        return next_token_loss(self.call(tokens), targets)


class Vit(Task):
    steps = 30

    def model(self):
        return VisionTransformer(16, patch=4, width=32, heads=2, layers=2, classes=5)

    def optimize(self, parameters):
        return torch.optim.SGD(parameters, lr=0.01)

    def batch(self):
        return torch.randn(4, 3, 16, 16), torch.randint(5, (4,))


class Lstm(Task):
    steps = 50

    def model(self):
        return SequenceClassifier(20, 16, 4, 2)

    def batch(self):
        return torch.randint(20, (8, 6)), torch.randint(4, (8,))


class Segmentation(Task):
    steps = 20

    def model(self):
        return UNet(channels=8)

    def batch(self):
        return torch.randn(2, 3, 16, 16), torch.randn(2, 3, 16, 16)

    def loss(self, image, target):
        return F.mse_loss(self.call(image), target)


class Gan(Task):
    def make(self):
        self.generator = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
        self.critic = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
        self.generate, self.judge = self.compile(self.generator), self.compile(self.critic)
        self.optimizers = [torch.optim.SGD(m.parameters(), lr=0.02) for m in (self.generator, self.critic)]

    def batch(self):
        return torch.randn(16, 8) + 2, torch.randn(16, 4)

    def step(self, real, noise):
        one, zero = torch.ones(16, 1), torch.zeros(16, 1)
        made = self.generate(noise)
        self.optimizers[1].zero_grad()
        of_critic = F.binary_cross_entropy_with_logits(self.judge(real), one)
        of_critic = of_critic + F.binary_cross_entropy_with_logits(self.judge(made.detach()), zero)
        of_critic.backward()
        self.optimizers[1].step()
        self.optimizers[0].zero_grad()
        of_generator = F.binary_cross_entropy_with_logits(self.judge(made), one)
        of_generator.backward()
        self.optimizers[0].step()
        return (of_critic + of_generator).detach()


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 20))

    def forward(self, x):
        mean, logvar = self.encoder(x).chunk(2, 1)
        return self.decoder(mean + torch.exp(0.5 * logvar) * torch.randn_like(mean)), mean, logvar


class Vae(Task):
    def model(self):
        return Autoencoder()

    def optimize(self, parameters):
        return torch.optim.SGD(parameters, lr=0.01)

    def batch(self):
        return (torch.rand(16, 20),)

    def loss(self, x):
        decoded, mean, logvar = self.call(x)
        divergence = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(1).mean()
        return F.binary_cross_entropy_with_logits(decoded, x, reduction="sum") / len(x) + 0.1 * divergence


class Dlrm(Task):
    def model(self):
        return Recommender(tables=3, rows=50, width=8, dense=5)

    def batch(self):
        return torch.randn(16, 5), torch.randint(50, (16, 3, 2)), torch.rand(16).round()

    def loss(self, dense, sparse, target):
        return F.binary_cross_entropy_with_logits(self.call(dense, sparse), target)


class GradientPenalty(Task):
    def model(self):
        return nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))

    def batch(self):
        return (torch.randn(12, 6),)

    def loss(self, x):
        x = x.clone().requires_grad_()
        y = self.call(x)
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y.square().mean() + (slope.norm(dim=1) - 1).square().mean()


class Reinforce(Task):
    """An episode whose length the actions decide."""

    steps = 60

    def model(self):
        return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))

    def batch(self):
        return (torch.randn(3),)

    def loss(self, state):
        losses, reward = [], 0.0
        for _ in range(5):
            logits = F.log_softmax(self.call(state), -1)
            action = torch.multinomial(logits.detach().exp(), 1).item()
            reward += 1.0 if action else -0.5
            losses.append(-logits[action])
            state = state + (0.3 if action else -0.3)
            if state[0].item() > 1.0:
                break
        return torch.stack(losses).sum() * reward


ALL = (Mlp, SimpleModel, LabelSmoothing, ResNet18, LanguageModel, Vit, Lstm, Segmentation, Gan, Vae, Dlrm,
       GradientPenalty, Reinforce)  # fmt: skip
