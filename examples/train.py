"""A training loop, four ways: plain PyTorch, smelt around the model, smelt around the whole step, torch.compile.

The same weights, the same batches in the same order; each way in a process of its own. `python examples/train.py`, or
./dev demo.
"""
import argparse
import json
import subprocess
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 2
WAYS = {'eager': 'plain PyTorch', 'model': 'model = smelt.compile(model)', 'step': '@smelt.compile def step(...)',
        'torch': 'model = torch.compile(model)'}


class SimpleModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(128, 256)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(256, 10)

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x)))


def batches():
    """1000 samples in batches of 32, the last one smaller, in an order that depends on the seed alone."""
    data, labels = torch.randn(1000, 128), torch.randint(0, 10, (1000,))
    return DataLoader(TensorDataset(data, labels), batch_size=32, shuffle=True)


def make_step(way):
    """The function that trains on one batch and returns the loss."""
    model = SimpleModel()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    if way == 'model':
        import smelt
        model = smelt.compile(model)
    elif way == 'torch':
        model = torch.compile(model)

    def step(inputs, targets):
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    if way == 'step':
        import smelt
        step = smelt.compile(step)
    return step


def train(way):
    """Losses and seconds of each step, and the peak memory of the process in MiB beyond what it had before."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the model is small: more threads only wait for each other
    loader = batches()
    step = make_step(way)
    before = peak_mib()
    losses, seconds = [], []
    for _ in range(EPOCHS):
        for inputs, targets in loader:
            start = time.perf_counter()
            loss = step(inputs, targets)
            seconds.append(time.perf_counter() - start)
            losses.append(loss.item())
    return {'losses': losses, 'seconds': seconds, 'mib': peak_mib() - before}


def peak_mib():
    try:
        import resource
    except ImportError:  # not on Windows
        return float('nan')
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(way):
    """train(way) in a process of its own; nothing if it fails there."""
    done = subprocess.run([sys.executable, __file__, '--way', way], capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    if way != 'torch':  # torch.compile needs a C++ compiler; smelt does not
        sys.exit(f'{way} failed:\n{done.stderr}')
    return None


def show(results):
    eager = results['eager']
    steady = slice(len(eager['seconds']) // 2, None)  # the second epoch
    median = lambda seconds: sorted(seconds)[len(seconds) // 2]
    print(f'SimpleModel, Adam, {EPOCHS} epochs of {len(eager["losses"]) // EPOCHS} steps, PyTorch {torch.__version__}, '
          'one CPU thread\n')
    print(f'{"":32}{"one step":>12}{"":>8}{"first step":>13}{"memory":>11}{"last loss":>12}{"difference":>13}')
    for way, result in results.items():
        if result is None:
            print(f'{WAYS[way]:32}{"not available here":>20}')
            continue
        each, first = median(result['seconds'][steady]), result['seconds'][0]
        times = median(eager['seconds'][steady]) / each
        difference = max(abs(a - b) / abs(b) for a, b in zip(result['losses'], eager['losses']))
        print(f'{WAYS[way]:32}{1e6 * each:9.0f} us{times:7.2f}x{1e3 * first:10.1f} ms{result["mib"]:7.0f} MiB'
              f'{result["losses"][-1]:12.6f}{difference:13.1e}')
    print('\none step: median of the second epoch, and how many times as fast as eager. first step: with the compilation in '
          "it.\nmemory: what the process's peak grew by. difference: of the losses to eager's, the largest relative one.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--way', choices=WAYS, help='one way only, as JSON')
    parser.add_argument('--without-torch-compile', action='store_true', help='which takes a while')
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(train(arguments.way)))
        return
    ways = [way for way in WAYS if way != 'torch' or not arguments.without_torch_compile]
    show({way: run(way) for way in ways})


if __name__ == '__main__':
    main()
