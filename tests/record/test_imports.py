"""Recording loads nothing of PyTorch's own compiler that the program does not load by itself."""

import json
import os
import subprocess
import sys

# The same programs with and without smelt: forward, backward and optimizer step of an MLP, a conv net, a transformer.
PROGRAM = """
import json, os, sys
import torch
from torch import nn

if os.environ["WITH_SMELT"] == "1":
    before = set(sys.modules)
    import smelt
    own = sorted(set(sys.modules) - before)
else:
    smelt, own = None, []

def train(model, x):
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    def step(x):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    step(x)
    if smelt:
        graph = smelt.record(step, x)
        graph.run(x)
        str(graph), graph.explain(), graph.program()
        dynamic = smelt.record(lambda t: model(t).sum() / t.shape[0], x, dynamic_shapes=[{0: "batch"}])
        # matmul of more than three dimensions asks for their sizes before PyTorch 2.13: such a graph holds for one batch.
        attends = any(isinstance(part, nn.MultiheadAttention) for part in model.modules())
        dynamic.run(x if attends and torch.__version__ < (2, 13) else torch.cat([x, x]))

train(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3)), torch.randn(4, 6))
train(nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                    nn.Conv2d(6, 8, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)),
      torch.randn(2, 3, 8, 8))
train(nn.Sequential(nn.Embedding(11, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 3)),
      torch.randint(0, 11, (2, 5)))
if smelt:
    for fn in (lambda t: t.sum().item(), lambda t: t.numpy(), lambda t: t @ torch.ones(5, 5), lambda t: t.view(7)):
        try:
            smelt.record(fn, torch.randn(4, 6))
        except RuntimeError:
            pass
print(json.dumps({"own": own, "all": sorted(sys.modules)}))
"""

BANNED = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx", "torch._export", "torch._refs", "torch._decomp",
          "torch._meta_registrations", "torch._subclasses", "torch._prims", "sympy", "triton")  # fmt: skip


def modules(with_smelt):
    environment = dict(os.environ, WITH_SMELT="1" if with_smelt else "0")
    out = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, env=environment)
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout.splitlines()[-1])


def test_no_compiler_modules():
    with_smelt, without = modules(True), modules(False)
    more = set(with_smelt["all"]) - set(without["all"])
    assert "smelt._native" in more
    assert [m for m in sorted(more) if m.startswith(BANNED)] == []
    assert [m for m in with_smelt["own"] if m.startswith("torch")] == []  # import smelt alone
