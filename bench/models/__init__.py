"""The models of the benches and the demo: ordinary PyTorch, each with inputs and a loss.

    workload = models.make('gpt2', device='cpu')
    workload.forward(*workload.inputs)   # the output, without gradients, as for inference
    workload.step(*workload.inputs)      # the loss; gradients are in the parameters' .grad, as in training
"""
import torch

from . import inference
from .bert import bert_base
from .dlrm import dlrm
from .gpt2 import gpt2, gpt2_tiny
from .lstm import lstm
from .perceptron import mlp, simple
from .resnet import resnet18, resnet50
from .unet import unet
from .vit import vit_tiny
from .workload import Workload

ALL = {make.__name__: make for make in (simple, mlp, resnet18, resnet50, gpt2, gpt2_tiny, bert_base, lstm, unet,
                                        vit_tiny, dlrm)}
# For inference only: no loss.
INFERENCE = {make.__name__: make for make in inference.ALL}


def make(name, device='cpu', seed=0, **sizes):
    """The workload called `name` with its parameters and inputs drawn from `seed`; sizes are those of its function."""
    torch.manual_seed(seed)
    return {**ALL, **INFERENCE}[name](**sizes).to(device)
