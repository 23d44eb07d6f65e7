"""A vision transformer (ViT-Tiny) from PyTorch's own encoder layers."""
import torch
from torch import nn

from .workload import Workload


class VisionTransformer(nn.Module):
    def __init__(self, size, patch, width, heads, layers, classes):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.1, activation='gelu', batch_first=True,
                                           norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.encoder(x)[:, 0])


def vit_tiny(batch=2, size=224, layers=12):
    module = VisionTransformer(size, patch=16, width=192, heads=3, layers=layers, classes=100)
    return Workload(module, (torch.randn(batch, 3, size, size), torch.randint(100, (batch,))), nn.CrossEntropyLoss(),
                    description=f'{layers} layers, width 192, {batch} x 3 x {size} x {size}')
