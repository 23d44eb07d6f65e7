"""On a GPU, too, the first call of a compiled model needs no more memory than a plain one."""
import pathlib
import sys

import pytest
import torch
from torch import nn

import smelt

sys.path.append(str(pathlib.Path(__file__).parents[2] / "bench"))
from models.gpt2 import GPT2, Config  # noqa: E402
from models.resnet import Bottleneck, ResNet  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


def layers():
    parts = []
    for _ in range(40):
        parts += [nn.Linear(1024, 1024), nn.ReLU()]
    return nn.Sequential(*parts), torch.randn(8192, 1024)


def resnet50():
    model = ResNet(widths=(256, 512, 1024, 2048), depths=(3, 4, 6, 3), block=Bottleneck, classes=1000)
    return model, torch.randn(32, 3, 224, 224)


def gpt2():
    return GPT2(Config()), torch.randint(50257, (4, 512))


def peak(call):
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("make", [layers, resnet50, gpt2], ids=lambda make: make.__name__)
def test_the_peak_of_a_first_call(make, train):
    torch.manual_seed(0)
    model, x = make()
    model, x = model.cuda().train(train), x.cuda()

    def step(call):
        if train:
            call(x).float().square().mean().backward()
            model.zero_grad()
        else:
            with torch.no_grad():
                call(x)

    step(model)  # libraries take their workspace
    plain = peak(lambda: step(model))
    first = peak(lambda: step(smelt.compile(model)))
    assert first <= 1.1 * plain
