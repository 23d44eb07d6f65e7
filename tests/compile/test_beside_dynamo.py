"""torch.compile in the same process wraps functions of torch's, of its optimizers above all."""
import subprocess
import sys

PROGRAM = '''
import torch, smelt
torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(2, 4)

@smelt.compile
def step():
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    return loss

for _ in range(4):
    step()
assert smelt.explain(step)().break_count == 0, str(smelt.explain(step)())
'''


def test_a_step_is_one_graph():
    done = subprocess.run([sys.executable, '-c', PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
