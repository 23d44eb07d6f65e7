"""options={"freeze": True}: weights folded and packed once, and again when they have changed."""

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import smelt
from generated import HAS_KERNELS

FREEZE = {"freeze": True}


@pytest.fixture(autouse=True)
def without_gradients():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


class Block(nn.Module):
    """Of a ResNet, with statistics that are not 0 and 1."""

    def __init__(self, channels, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.down = nn.Sequential(nn.Conv2d(channels, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.down(x))


class SmallResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                                  nn.MaxPool2d(3, 2, 1))  # fmt: skip
        self.blocks = nn.Sequential(Block(16), Block(16, 2))
        self.head = nn.Linear(16, 100)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(96, 128), nn.BatchNorm1d(128), nn.GELU(), nn.Linear(128, 64))

    def forward(self, x):
        return self.layers(x) * 0.5


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(64), nn.LayerNorm(64)
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64, bias=False)
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)
        self.register_buffer("mask", torch.ones(16, 16).tril() == 0)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, 16)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        weights = (q @ k.transpose(-2, -1) / 4).masked_fill(self.mask, float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def with_statistics(model):
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.normal_(0, 0.5)
            module.running_var.uniform_(0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.5)
    return model.eval()


MODELS = {
    "resnet": (lambda: with_statistics(SmallResNet()), (2, 3, 64, 64)),
    "mlp": (lambda: with_statistics(Mlp()), (32, 96)),
    "transformer": (lambda: with_statistics(Transformer()), (2, 16, 64)),
}
EACH_MODEL = pytest.mark.parametrize("name", MODELS)


def make(name, **settings):
    build, shape = MODELS[name]
    model = build()
    return model, smelt.compile(model, options=FREEZE, **settings), torch.randn(shape)


def assert_same(compiled, model, x):
    expected = model(x)
    for _ in range(2):
        got = compiled(x)
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def graph_of(compiled, *inputs):
    return smelt.explain(compiled)(*inputs).segments[0].graph


def prepares(compiled, *inputs):
    """What is prepared are inputs beside the arguments."""
    return "captured" in graph_of(compiled, *inputs)


# -- results


@EACH_MODEL
@pytest.mark.parametrize("backend", ("native", "interpret"))
def test_results(name, backend):
    model, compiled, x = make(name, backend=backend)
    for _ in range(3):
        assert_same(compiled, model, x)
    assert_same(compiled, model, torch.randn_like(x))
    assert prepares(compiled, x)


@pytest.mark.skipif(not HAS_KERNELS, reason="built without LLVM: nothing is decomposed")
def test_batch_norms_are_folded():
    model, compiled, x = make("resnet")
    assert "rsqrt" not in graph_of(compiled, x)
    assert "rsqrt" in graph_of(smelt.compile(model), x)


def test_without_the_option_nothing_is_prepared():
    model, _, x = make("mlp")
    assert not prepares(smelt.compile(model), x)
    assert not prepares(smelt.compile(model, options={"freeze": False}), x)


def test_double():
    model = with_statistics(Mlp().double())
    compiled = smelt.compile(model, options=FREEZE)
    x = torch.randn(32, 96, dtype=torch.float64)
    compiled(x)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-10, atol=1e-10)


def test_a_function_over_a_model():
    model, _, x = make("mlp")
    compiled = smelt.compile(lambda x: model(x).relu(), options=FREEZE)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), model(x).relu(), rtol=1e-4, atol=1e-4)
    assert prepares(compiled, x)


def test_arguments_are_not_frozen():
    compiled = smelt.compile(lambda x, w: x @ w.t() * 0.5, options=FREEZE)
    x = torch.randn(64, 64)
    for _ in range(3):
        w = torch.randn(64, 64)
        torch.testing.assert_close(compiled(x, w), x @ w.t() * 0.5, rtol=1e-4, atol=1e-4)
    assert not prepares(compiled, x, w)


# -- changes


def state(seed, model):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.rand(t.shape, generator=generator) if t.is_floating_point() else t.clone()
            for name, t in model.state_dict().items()}  # fmt: skip


def replace_data(model):
    for parameter in model.parameters():
        parameter.data = torch.rand_like(parameter)


def replace_parameters(model):
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(torch.rand_like(parameter)))


def change_in_place(model):
    for parameter in model.parameters():
        parameter.mul_(1.5)


def change_buffers(model):
    for buffer in model.buffers():
        buffer.mul_(2) if buffer.is_floating_point() else buffer.zero_()


def step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.enable_grad():
        for parameter in model.parameters():
            parameter.grad = torch.rand_like(parameter)
        optimizer.step()
    optimizer.zero_grad()


CHANGES = {
    "load_state_dict": lambda model: model.load_state_dict(state(1, model)),
    "assign": lambda model: model.load_state_dict(state(2, model), assign=True),
    "data": replace_data,
    "parameters": replace_parameters,
    "in_place": change_in_place,
    "buffers": change_buffers,
    "optimizer": step,
    "share_memory": lambda model: model.share_memory(),
    "init": lambda model: [nn.init.normal_(parameter, 0, 0.1) for parameter in model.parameters()],
}


@EACH_MODEL
@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_noticed(name, change):
    model, compiled, x = make(name)
    assert_same(compiled, model, x)
    CHANGES[change](model)
    assert_same(compiled, model, x)
    CHANGES["in_place"](model)
    assert_same(compiled, model, x)


def test_a_change_of_one_bias_in_inference_mode():
    model, compiled, x = make("mlp")
    assert_same(compiled, model, x)
    with torch.inference_mode():
        model.layers[0].bias.add_(1)
    assert_same(compiled, model, x)


def test_memory_that_is_used_again_is_noticed():
    """Another parameter at the same address, as often changed."""
    layer = nn.Linear(64, 64)
    compiled, x = smelt.compile(layer, options=FREEZE), torch.randn(64, 64)
    for _ in range(8):
        assert_same(compiled, layer, x)
        layer.weight = None
        layer.weight = nn.Parameter(torch.randn(64, 64))


def test_what_is_returned_is_the_callers():
    class Buffers(nn.Module):
        def __init__(self, mean, variance):
            super().__init__()
            self.register_buffer("mean", mean)
            self.register_buffer("variance", variance)
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            return (self.linear(x) - self.mean) * (self.variance + 1).rsqrt()

    mean, variance = torch.zeros(16)[::2], torch.ones(8)
    for model in (Buffers(mean, variance), Buffers(mean.view(1, 8), variance.view(1, 8))):
        compiled, x = smelt.compile(model.eval(), options=FREEZE), torch.randn(4, 8)
        for _ in range(3):
            assert_same(compiled, model, x)
            F.batch_norm(x * 3 + 1, mean, variance, training=True)
        assert_same(compiled, model, x)
