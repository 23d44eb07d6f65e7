"""Whether the instruments tell the truth: their numbers beside those of a stop-watch of its own.

  bench      the medians of `smelt bench`, eager and compiled, against the medians of calls that are timed here, in turn with them
  explain    the times of kernels, of PyTorch's ops and of what lies between, added up, against the profiled call
  import     what `import smelt` takes after `import torch`

On a GPU the models are so large that the GPU is busy all the time: a small call is the host's time, and no sum of kernels.

Must hold: bench within 5 %, explain within 10 %, the import at most 30 ms. The machine should be quiet.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import smelt
from smelt.instruments import inspection

MODELS = '''
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

def transformer(batch_size=None, device='cpu'):
    torch.manual_seed(0)
    batch_size = batch_size or (16 if device == 'cpu' else 256)
    return nn.Sequential(*[Block(512) for _ in range(4)]).to(device), torch.randn(batch_size, 128, 512, device=device)

def pointwise(batch_size=None, device='cpu'):
    batch_size = batch_size or (64 if device == 'cpu' else 2048)
    return (lambda x: torch.softmax(x.sin() * 2 + 1, -1).tanh() * x), torch.randn(batch_size, 128, 256, device=device)
'''


def parse_arguments():
    parser = argparse.ArgumentParser(prog='./dev bench instruments', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--device', default='cpu', help='cpu or cuda')
    parser.add_argument('--seconds', type=float, default=6, help='of each measurement of a model')
    return parser.parse_args()


def wait(device):
    if device == 'cuda':
        torch.cuda.synchronize()


def stop_watch(target, device, seconds):
    """Medians of eager and compiled calls, in turn."""
    functions = []
    for compiled in (False, True):
        model, x = target(device=device)
        functions.append((smelt.compile(model) if compiled else model, x))
    took = ([], [])
    with torch.no_grad():
        for function, x in functions * 20:
            function(x)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for (function, x), list_ in zip(functions, took):
                wait(device)
                start = time.perf_counter()
                function(x)
                wait(device)
                list_.append(time.perf_counter() - start)
    return [statistics.median(list_) for list_ in took]


def of_bench(file, name, device, seconds):
    done = subprocess.run([sys.executable, '-m', 'smelt', 'bench', f'{file}:{name}', '--json', '--device', device, '--no-memory',
                           '--no-energy', '--seconds', str(seconds)], capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)['rows']
    return [next(row['median'] for row in rows if (row['label'] == 'eager') == is_eager) for is_eager in (True, False)]


def of_explain(target, device):
    """What the parts of a call add up to, against the call."""
    model, x = target(device=device)
    with torch.no_grad():
        data = inspection.inspect(*smelt.explain(model)(x)._call)
    shares = data['shares']
    inside = shares['kernels'] + shares['pytorch'] if device == 'cpu' else data['device_seconds']
    return inside, data['profiled_seconds']


def import_time():
    program = 'import torch, time; start = time.perf_counter(); import smelt; print(time.perf_counter() - start)'
    return min(float(subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True).stdout)
               for _ in range(5))


def main():
    arguments = parse_arguments()
    namespace = {}
    exec(MODELS, namespace)
    good = True
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / 'models_to_measure.py'
        file.write_text(MODELS)
        for name in ('transformer', 'pointwise'):
            before = stop_watch(namespace[name], arguments.device, arguments.seconds / 2)
            told = of_bench(file, name, arguments.device, arguments.seconds)
            after = stop_watch(namespace[name], arguments.device, arguments.seconds / 2)
            for what, a, b, c in zip(('eager', 'compiled'), before, told, after):
                watch = (a + c) / 2
                good &= abs(b / watch - 1) <= 0.05
                print(f'{name:12} {what:9} bench {b * 1e3:8.3f} ms   stop-watch {watch * 1e3:8.3f} ms   {100 * (b / watch - 1):+5.1f} %')
            inside, whole = of_explain(namespace[name], arguments.device)
            good &= 0.9 <= inside / whole <= 1.1
            print(f'{name:12} explain   parts {inside * 1e3:8.3f} ms   call       {whole * 1e3:8.3f} ms   {100 * (inside / whole - 1):+5.1f} %')
    took = import_time()
    good &= took <= 0.03
    print(f'import smelt {took * 1e3:.1f} ms after torch')
    sys.exit(0 if good else 1)


if __name__ == '__main__':
    main()
