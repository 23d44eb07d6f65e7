"""No op of usual models, of their gradients or of the optimizers is left to the slow tiers."""

import os
import warnings

# oneDNN would use AMX where the processor has it, also where the machine it runs on does not let it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from shape_check import ShapeChecker, first_of_each

DEVICE = os.environ.get("SMELT_SHAPES_DEVICE", "cpu")
# Ops that read values: the recorder has its own answers to them.
READS = {"aten::_local_scalar_dense", "aten::equal"}
# oneDNN alone knows the size of its workspace.
UNKNOWABLE = {"aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward"}


class Residual(nn.Module):
    def __init__(self, channels, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels * stride, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels * stride)
        self.conv2 = nn.Conv2d(channels * stride, channels * stride, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels * stride)
        self.skip = nn.Conv2d(channels, channels * stride, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x))


class Block(nn.Module):
    """A transformer block as in GPT-2."""

    def __init__(self, width=32, heads=4, dropout=0.1):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).contiguous().view(b, t, c)))
        return x + self.drop(self.mlp(self.norm2(x)))


class Transformer(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, width), nn.Embedding(16, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 50, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell, self.head = kind(8, 16, num_layers=2, batch_first=True, bidirectional=True), nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.norm = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.GroupNorm(4, 8)
        self.out = nn.Conv2d(24, 2, 1)

    def forward(self, x):
        a = F.silu(self.down1(x))
        b = F.leaky_relu(self.down2(F.max_pool2d(a, 2)), 0.1)
        up = F.interpolate(self.norm(self.up(F.avg_pool2d(b, 2))), scale_factor=2, mode="bilinear")
        return self.out(torch.cat([F.pad(up, (0, 0, 0, 0)), a, F.interpolate(b[:, :8], scale_factor=2)], 1))


class Ranking(nn.Module):
    """A recommender as in DLRM."""

    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(20, 8, mode="sum") for _ in range(3))
        self.bottom, self.top = nn.Sequential(nn.Linear(5, 8), nn.ReLU()), nn.Linear(14, 1)

    def forward(self, dense, ids, offsets):
        x = self.bottom(dense)
        parts = torch.stack([x] + [bag(ids, offsets) for bag in self.bags], dim=1)
        inner = torch.bmm(parts, parts.transpose(1, 2))
        rows, columns = torch.tril_indices(4, 4, offset=-1)
        return torch.sigmoid(self.top(torch.cat([x, inner[:, rows, columns]], 1))).squeeze(1)


def mlp():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4), nn.Tanh())
    x, y = torch.randn(5, 8), torch.randn(5, 4)
    return model, lambda m: F.mse_loss(m(x), y) + F.l1_loss(m(x), y) + F.smooth_l1_loss(m(x), y)


def resnet(memory_format=torch.contiguous_format):
    model = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
                          Residual(8), Residual(8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))  # fmt: skip
    model = model.to(memory_format=memory_format)
    x, y = torch.randn(4, 3, 32, 32).contiguous(memory_format=memory_format), torch.randint(0, 10, (4,))
    return model, lambda m: F.cross_entropy(m(x), y, label_smoothing=0.1)


def resnet_channels_last():
    return resnet(torch.channels_last)


def transformer():
    ids = torch.randint(0, 50, (2, 9))
    return Transformer(), lambda m: F.cross_entropy(m(ids[:, :-1]).reshape(-1, 50), ids[:, 1:].reshape(-1))


def encoder():
    model = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True)
    x, mask = torch.randn(2, 6, 16), torch.zeros(2, 6, dtype=torch.bool)
    return model, lambda m: m(x, src_key_padding_mask=mask).pow(2).mean()


def lstm():
    x, y = torch.randn(3, 5, 8), torch.randint(0, 3, (3,))
    return Recurrent(nn.LSTM), lambda m: F.nll_loss(F.log_softmax(m(x), 1), y)


def gru():
    x, y = torch.randn(3, 5, 8), torch.randint(0, 3, (3,))
    return Recurrent(nn.GRU), lambda m: F.cross_entropy(m(x), y)


def unet():
    x, y = torch.randn(2, 3, 16, 16), torch.randint(0, 2, (2, 16, 16))
    return UNet(), lambda m: F.cross_entropy(m(x), y)


def gan():
    generator = nn.Sequential(nn.ConvTranspose2d(6, 8, 4, 2, 1), nn.BatchNorm2d(8), nn.ReLU(True), nn.ReflectionPad2d(1),
                              nn.Conv2d(8, 3, 3), nn.InstanceNorm2d(3), nn.Tanh())  # fmt: skip
    critic = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 8, 4, 2, 1)), nn.LeakyReLU(0.2, True),
                           nn.Conv2d(8, 1, 4), nn.Flatten())  # fmt: skip
    model = nn.ModuleList([generator, critic])
    z = torch.randn(2, 6, 4, 4)

    def loss(m):
        score = m[1](m[0](z))
        return F.binary_cross_entropy_with_logits(score, torch.ones_like(score)) + F.softplus(-score).mean()

    return model, loss


def ranking():
    dense, ids, offsets = torch.randn(4, 5), torch.randint(0, 20, (9,)), torch.tensor([0, 2, 4, 7])
    y = torch.rand(4).round()
    return Ranking(), lambda m: F.binary_cross_entropy(m(dense, ids, offsets), y)


MODELS = [mlp, resnet, resnet_channels_last, transformer, encoder, lstm, gru, unet, gan, ranking]
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "sgd_foreach": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
    "sgd_fused": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, 0.1, amsgrad=True),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, 0.1, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, 0.1, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
    "rmsprop_foreach": lambda p: torch.optim.RMSprop(p, 0.1, momentum=0.9, centered=True, foreach=True),
    "nadam": lambda p: torch.optim.NAdam(p, 0.1),
    "radam_foreach": lambda p: torch.optim.RAdam(p, 0.1, foreach=True),
    "adamax": lambda p: torch.optim.Adamax(p, 0.1),
    "adadelta_foreach": lambda p: torch.optim.Adadelta(p, 0.1, foreach=True),
    "rprop": lambda p: torch.optim.Rprop(p, 0.1),
    "asgd_foreach": lambda p: torch.optim.ASGD(p, 0.1, foreach=True),
}


def verdict(checker):
    print("\n" + checker.report())
    assert not checker.mismatches, f"{len(checker.mismatches)} mismatches\n" + first_of_each(checker.mismatches)
    assert not checker.unnoticed, f"{len(checker.unnoticed)} unnoticed\n" + first_of_each(checker.unnoticed)
    assert not set(checker.missing) - READS - UNKNOWABLE, f"ops without row: {checker.missing}"
    assert not checker.refusals, f"refused: {checker.refusals}"


@pytest.fixture(autouse=True)
def quiet():
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("amp", [False, True], ids=["plain", "autocast"])
@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_training(make, amp):
    checker = ShapeChecker()
    checker.context = make.__name__
    model, loss = make()
    if amp and make is ranking:
        pytest.skip("binary_cross_entropy refuses autocast")
    with checker:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=amp):
            value = loss(model)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    verdict(checker)


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_inference(make):
    checker = ShapeChecker()
    checker.context = make.__name__
    model, loss = make()
    with torch.no_grad(), checker:
        loss(model.eval())
    verdict(checker)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer(name):
    checker = ShapeChecker()
    checker.context = name
    model, loss = mlp()
    optimizer = OPTIMIZERS[name](model.parameters())
    for _ in range(2):
        loss(model).backward()
        with checker:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    verdict(checker)
