"""PyTorch's own layers, forward and backward, with the state they write."""

import pytest
import torch
import torch.nn.functional as F
from record_check import check, same, with_grads
from torch import nn

import smelt


def train_step(model, *inputs):
    """Gradients of all parameters and of the first input, through a loss that weighs every output."""
    model.zero_grad(set_to_none=True)
    out = model(*inputs)
    outs = [t for t in (out if isinstance(out, tuple) else (out,)) if isinstance(t, torch.Tensor)]
    loss = sum((t.float() * torch.linspace(0.5, 1.5, t.numel()).view(t.shape)).sum() for t in outs)
    loss.backward()
    return loss.detach(), [t.detach() for t in outs]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(6, 2, batch_first=True, dropout=0.1)

    def forward(self, x):
        return self.mha(x, x, x, need_weights=True)[0]


class Residual(nn.Module):
    """Convolutions with batch norm, in-place activations and a residual sum."""

    def __init__(self, channels=6):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(channels)
        self.out = nn.Linear(channels, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x)), inplace=True), 2)
        y = self.norm2(self.conv(x))
        y += x
        return self.out(F.adaptive_avg_pool2d(F.relu(y, inplace=True), 1).flatten(1))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, i):
        return self.head(torch.tanh(self.embed(i)))


class Buffers(nn.Module):
    """Buffers read, counted up, replaced by a computed value and shifted in a window."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(6))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(6))
        self.register_buffer("window", torch.zeros(3, 6))

    def forward(self, x):
        self.steps += 1
        with torch.no_grad():
            self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)
            self.window.copy_(torch.roll(self.window, 1, 0))
            self.window[0] = x[0]
        return x * self.scale + self.average / self.steps + self.window.sum(0)


def seq(*shape):
    return torch.randn(*shape)


MODULES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)), lambda: [seq(4, 6)]),
    "lstm": (lambda: nn.LSTM(6, 5, num_layers=2, batch_first=True), lambda: [seq(2, 4, 6)]),
    "lstm bidirectional, dropout": (lambda: nn.LSTM(6, 5, num_layers=2, bidirectional=True, dropout=0.3), lambda: [seq(4, 2, 6)]),
    "gru": (lambda: nn.GRU(6, 5, bidirectional=True), lambda: [seq(4, 2, 6)]),
    "rnn": (lambda: nn.RNN(6, 5), lambda: [seq(4, 2, 6)]),
    "lstm cell": (lambda: nn.LSTMCell(6, 5), lambda: [seq(4, 6)]),
    "attention": (Attention, lambda: [seq(2, 4, 6)]),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), lambda: [seq(2, 4, 6)]),
    "encoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True, norm_first=True), 2, enable_nested_tensor=False), lambda: [seq(2, 4, 6)]),
    "decoder layer": (lambda: nn.TransformerDecoderLayer(6, 2, 8, batch_first=True), lambda: [seq(2, 4, 6), seq(2, 3, 6)]),
    "residual conv": (Residual, lambda: [seq(4, 3, 8, 8)]),
    "residual conv, channels_last": (lambda: Residual().to(memory_format=torch.channels_last), lambda: [seq(4, 3, 8, 8).to(memory_format=torch.channels_last)]),
    "batch norm 1d": (lambda: nn.BatchNorm1d(6), lambda: [seq(5, 6)]),
    "batch norm without stats": (lambda: nn.BatchNorm2d(3, track_running_stats=False), lambda: [seq(2, 3, 4, 4)]),
    "batch norm 3d no affine": (lambda: nn.Sequential(nn.Conv3d(2, 3, 2), nn.BatchNorm3d(3, affine=False)), lambda: [seq(2, 2, 4, 4, 4)]),
    "instance norm": (lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), lambda: [seq(2, 3, 4, 4)]),
    "norms": (lambda: nn.Sequential(nn.LayerNorm(6), nn.RMSNorm(6), nn.GroupNorm(2, 4)), lambda: [seq(2, 4, 6)]),
    "transposed conv": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3, stride=2), nn.PReLU(), nn.Upsample(scale_factor=2)), lambda: [seq(2, 3, 4, 4)]),
    "grouped conv 1d": (lambda: nn.Sequential(nn.Conv1d(4, 8, 3, groups=2, dilation=2, padding="same"), nn.SiLU(), nn.AvgPool1d(2)), lambda: [seq(2, 4, 10)]),
    "tied weights": (Tied, lambda: [torch.tensor([[1, 2, 3], [4, 1, 10]])]),
    "embedding with padding": (lambda: nn.Sequential(nn.Embedding(9, 4, padding_idx=0), nn.Linear(4, 3)), lambda: [torch.tensor([[0, 2], [8, 0]])]),
    "buffers": (Buffers, lambda: [seq(4, 6)]),
    "bilinear": (lambda: nn.Bilinear(3, 4, 5), lambda: [seq(2, 3), seq(2, 4)]),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)), lambda: [seq(3, 6)]),
    "spectral norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4)), lambda: [seq(3, 6)]),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_training(name):
    make, inputs = MODULES[name]
    check(train_step, with_grads(make()), *inputs())


@pytest.mark.parametrize("name", MODULES)
def test_inference(name):
    make, inputs = MODULES[name]

    def fn(model, *inputs):
        with torch.no_grad():
            return model(*inputs)

    check(fn, make().eval(), *inputs())


def test_module_itself_is_recorded():
    model, x = Residual(), torch.randn(4, 3, 8, 8)
    before = model.norm.running_mean.clone()
    graph = smelt.record(model, x)
    same(model.norm.running_mean, before)
    other = Residual()
    other.load_state_dict(model.state_dict())
    same(graph.run(x), other(x).detach())
    same(model.norm.running_mean, other.norm.running_mean)
    same(model.norm.num_batches_tracked, torch.tensor(1))


def test_parameter_updated_between_runs():
    model, x = nn.Linear(6, 3), torch.randn(4, 6)
    graph = smelt.record(model, x)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        same(graph.run(x), model(x).detach())
        model(x).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_module_built_inside():
    def fn(x):
        layer = nn.Linear(6, 3)
        return layer(x), nn.Parameter(x.detach()) * 2

    check(fn, torch.randn(4, 6))


def test_attribute_of_the_users_objects_stay():
    """Inside, a parameter is still the user's object: type, identity, attributes, dict keys."""
    model = nn.Linear(3, 3)
    model.weight.tag = "mine"
    table = {model.weight: 5}

    def fn(x):
        assert type(model.weight) is nn.Parameter and model.weight.tag == "mine" and table[model.weight] == 5
        assert model.weight is model._parameters["weight"] and dict(model.named_parameters())["bias"] is model.bias
        assert isinstance(x, torch.Tensor) and x.device.type == "cpu" and x.is_cpu and not x.is_meta
        return model(x) * table[model.weight]

    x = torch.randn(2, 3)
    same(smelt.record(fn, x).run(x), model(x).detach() * 5)


def test_packed_sequence():
    def fn(lstm, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, [4, 3, 1])
        return nn.utils.rnn.pad_packed_sequence(lstm(packed)[0])[0]

    lstm, x = nn.LSTM(6, 5), torch.randn(4, 3, 6)
    try:
        graph = smelt.record(fn, lstm, x)
    except smelt.RecordError:
        return  # reads the batch sizes from a tensor
    same(graph.run(lstm, x), fn(lstm, x).detach())


def test_cumulative_average_reads_its_counter():
    norm = nn.BatchNorm1d(6, momentum=None)
    with pytest.raises(smelt.RecordError, match="depends on tensor contents"):
        smelt.record(norm, torch.randn(5, 6))
