"""What people run on a CPU without gradients: the small functions and blocks of `./dev bench cpu`."""
import torch
from torch import nn
from torch.nn import functional as F

from .workload import Workload


def _no_loss(output):
    raise NotImplementedError('for inference only')


class _Function(nn.Module):
    """A function with its constant tensors, as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def _workload(function, *inputs, description):
    module = function if isinstance(function, nn.Module) else _Function(function)
    return Workload(module, inputs, _no_loss, targets=0, description=description)


def evaluate_features():
    def function(data, weight):
        return torch.relu(torch.mm(data, weight.unsqueeze(1))).squeeze(1)
    return _workload(function, torch.randn(64, 128), torch.randn(128), description='mm, relu, squeeze')


def feature_pyramid():
    class FeaturePyramid(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Conv2d(3, 64, kernel_size=5, stride=2, padding=2)
            self.decoder = nn.Linear(64 * 112 * 112, 10)

        def forward(self, x):
            return self.decoder(torch.flatten(torch.relu(self.encoder(x)), start_dim=1))
    return _workload(FeaturePyramid(), torch.randn(1, 3, 224, 224), description='convolution, relu, linear')


def transformer_tiny():
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    return _workload(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(4, 32, 128),
                     description="two encoder layers of PyTorch's own")


def norm_chain():
    norm = nn.LayerNorm(1024)

    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = norm

        def forward(self, x, r):
            return F.gelu(self.norm(x + r)) * torch.sigmoid(x)
    return _workload(Chain(), torch.randn(1024, 1024), torch.randn(1024, 1024), description='layer_norm, gelu, sigmoid')


def softmax():
    return _workload(lambda x: torch.softmax(x * 0.5 + 1, -1), torch.randn(2048, 4096), description='scaled softmax')


def pointwise_chain():
    def function(x, y):
        for i in range(4):
            x = torch.tanh(x * (1.0 + 0.1 * i) + y) * 0.5 + x
        return x
    return _workload(function, torch.randn(4 << 20), torch.randn(4 << 20), description='20 pointwise ops')


def llama_block():
    class Block(nn.Module):
        def __init__(self, width=256, heads=4, hidden=688, length=64):
            super().__init__()
            self.heads, self.head = heads, width // heads
            self.norm1, self.norm2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
            self.down = nn.Linear(hidden, width, bias=False)
            angle = torch.outer(torch.arange(length), 1e4 ** (-torch.arange(0, self.head, 2) / self.head))
            self.register_buffer('cos', angle.cos().repeat(1, 2))
            self.register_buffer('sin', angle.sin().repeat(1, 2))

        def norm(self, x, weight):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight

        def rotate(self, x):
            a, b = x.chunk(2, -1)
            return x * self.cos + torch.cat((-b, a), -1) * self.sin

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = (t.view(batch, length, self.heads, self.head).transpose(1, 2)
                       for t in self.qkv(self.norm(x, self.norm1)).chunk(3, -1))
            mixed = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            y = self.norm(x, self.norm2)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))
    return _workload(Block(), torch.randn(4, 64, 256), description='RMSNorm, rotary, SwiGLU')


def embedding_bag_mlp():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.bag = nn.EmbeddingBag(20000, 64, mode='mean')
            self.mlp = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))

        def forward(self, ids):
            return torch.sigmoid(self.mlp(self.bag(ids)))
    return _workload(Model(), torch.randint(0, 20000, (256, 20)), description='EmbeddingBag and three layers')


def unet_block():
    class Block(nn.Module):
        def __init__(self, channels=64):
            super().__init__()
            self.norm1, self.norm2 = nn.GroupNorm(8, channels), nn.GroupNorm(8, channels)
            self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
            self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

        def forward(self, x):
            return x + self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))
    return _workload(Block(), torch.randn(2, 64, 32, 32), description='GroupNorm, SiLU, convolutions')


def lstm_cell():
    class Cell(nn.Module):
        def __init__(self, width=128):
            super().__init__()
            self.x, self.h = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)

        def forward(self, x, h, c):
            i, f, g, o = (self.x(x) + self.h(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(c), c
    return _workload(Cell(), *(torch.randn(64, 128) for _ in range(3)), description='an LSTM cell by hand')


def gnn_step():
    class Step(nn.Module):
        def __init__(self, width=64):
            super().__init__()
            self.message, self.update = nn.Linear(2 * width, width), nn.Linear(2 * width, width)

        def forward(self, nodes, source, target):
            messages = torch.relu(self.message(torch.cat((nodes[source], nodes[target]), 1)))
            summed = torch.zeros_like(nodes).index_add(0, target, messages)
            count = torch.zeros(nodes.shape[0]).scatter_add(0, target, torch.ones(target.shape[0]))
            mean = summed / count.clamp(min=1).unsqueeze(1)
            return F.relu(self.update(torch.cat((nodes, mean), 1)))
    return _workload(Step(), torch.randn(2000, 64), torch.randint(0, 2000, (8000,)), torch.randint(0, 2000, (8000,)),
                     description='gather, scatter, two layers')


ALL = (evaluate_features, feature_pyramid, transformer_tiny, norm_chain, softmax, pointwise_chain, llama_block,
       embedding_bag_mlp, unet_block, lstm_cell, gnn_step)
