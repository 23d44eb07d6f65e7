"""The same inputs, threads and machine give the same bits; with numerics="eager" arithmetic has eager's."""
import subprocess
import sys

import pytest
import torch
from torch import nn

import smelt

PROGRAM = '''
import hashlib
import torch
import smelt

torch.manual_seed(0)
torch.set_num_threads({threads})
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Dropout(),
                            torch.nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

@smelt.compile
def step(x, y):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()

x, y = torch.randn(300, 64), torch.randint(10, (300,))
losses = torch.stack([step(x, y) for _ in range(5)])
state = torch.cat([value.detach().flatten() for value in (losses, *model.state_dict().values())])
print(hashlib.sha256(state.numpy().tobytes()).hexdigest())
'''


@pytest.mark.parametrize('threads', (1, 2))
def test_processes_agree(threads):
    """A training of some steps, dropout and optimizer included."""
    found = {subprocess.run([sys.executable, '-c', PROGRAM.format(threads=threads)], capture_output=True, text=True,
                            check=True).stdout for _ in range(2)}
    assert len(found) == 1


def test_calls_agree_also_after_a_reset():
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8), nn.Softmax(-1))
    x = torch.randn(100, 32, requires_grad=True)
    fast, seen = smelt.compile(model), []
    for turn in range(2):
        smelt.reset()
        for _ in range(4):
            result = fast(x)
            seen.append((result.detach(), *torch.autograd.grad(result.square().sum(), [x, *model.parameters()])))
        del seen[4 * turn - turn]  # the call that compiles is run op by op
    for other in seen[1:]:
        assert all(torch.equal(one, two) for one, two in zip(seen[0], other))


def test_arithmetic_with_the_numerics_of_eager():
    def chain(x, y):
        z = x * y + y
        return z / 3 - x * 0.1 + z.relu() * y
    exact = smelt.compile(chain, options={'numerics': 'eager'})
    for size in (7, 1000):
        for _ in range(3):
            x, y = torch.randn(size), torch.randn(size)
            assert torch.equal(exact(x, y), chain(x, y))
