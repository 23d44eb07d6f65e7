"""What CUDA graphs save: eager, compiled and launched op by op, compiled as CUDA graphs. Medians in microseconds, one process.

usage: ./dev bench cuda_graphs [ROW...]"""
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

import smelt
from smelt import _native

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from models.gpt2 import GPT2, Config  # noqa: E402
from models.resnet import Bottleneck, ResNet  # noqa: E402

MODES = {'eager': None, 'launched': 'max-autotune-no-cudagraphs', 'default': 'default', 'graph': 'reduce-overhead'}


def randn(*sizes, **options):
    return torch.randn(*sizes, device='cuda', **options)


def evaluate_features():
    w = randn(128, 1)
    x = randn(64, 128)
    return lambda x: torch.relu(x @ w).squeeze(-1), lambda f: lambda: f(x)


def small_functions():
    a, b = randn(64, 64), randn(64, 64)
    functions = [lambda a, b: torch.relu(a @ b), lambda a, b: (a + b).sum(), lambda a, b: F.softmax(a, -1) * b,
                 lambda a, b: F.layer_norm(a, (64,)) + b, lambda a, b: a.t().contiguous() + b,
                 lambda a, b: torch.cat([a, b]).mean(0), lambda a, b: F.gelu(a) * torch.sigmoid(b),
                 lambda a, b: a[:, ::2].exp(), lambda a, b: (a > b).float().mean(),
                 lambda a, b: torch.where(a > 0, a, b).argmax(-1), lambda a, b: a.cumsum(0),
                 lambda a, b: (a - a.mean()) / (a.std() + 1e-5)]
    return functions, lambda fs: lambda: [f(a, b) for f in fs]


def norm_chain():
    x, r = randn(8192, 4096), randn(8192, 4096)
    return (lambda x, r: F.gelu(F.layer_norm(x + r, (4096,))) * torch.sigmoid(x)), lambda f: lambda: f(x, r)


def gpt2_inference():
    model, tokens = GPT2(Config()).cuda().bfloat16().eval(), torch.randint(50257, (8, 512), device='cuda')
    return model, lambda f: lambda: f(tokens)


def gpt2_small_batch():
    model, tokens = GPT2(Config()).cuda().bfloat16().eval(), torch.randint(50257, (1, 32), device='cuda')
    return model, lambda f: lambda: f(tokens)


def resnet50_inference():
    model = ResNet(widths=(256, 512, 1024, 2048), depths=(3, 4, 6, 3), block=Bottleneck, classes=1000).cuda().eval()
    model, x = model.bfloat16().to(memory_format=torch.channels_last), randn(32, 3, 224, 224, dtype=torch.bfloat16)
    x = x.to(memory_format=torch.channels_last)
    return model, lambda f: lambda: f(x)


def whole_step(make_optimizer):
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 8)).cuda()
    optimizer, x, y = make_optimizer(model.parameters()), randn(32, 64), torch.randint(8, (32,), device='cuda')

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    return step, lambda f: lambda: f()


ROWS = {
    'evaluate_features': evaluate_features, '12 small functions': small_functions, 'norm chain': norm_chain,
    'GPT-2, 8 x 512': gpt2_inference, 'GPT-2, 1 x 32': gpt2_small_batch, 'ResNet-50, 32': resnet50_inference,
    'step, SGD': lambda: whole_step(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    'step, AdamW fused': lambda: whole_step(lambda p: torch.optim.AdamW(p, fused=True)),
    'step, Adam': lambda: whole_step(torch.optim.Adam),
    'step, Adam capturable': lambda: whole_step(lambda p: torch.optim.Adam(p, capturable=True)),
}


def median_us(call, seconds=0.5):
    for _ in range(30):
        call()
    torch.cuda.synchronize()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 10:
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def main(wanted):
    print(f'{"":24}' + ''.join(f'{mode:>12}' for mode in MODES))
    for name, make in ROWS.items():
        if wanted and name not in wanted:
            continue
        cells, reasons = [], set()
        for mode in MODES.values():
            smelt.reset()
            _native.forget_cuda_graphs()
            torch.manual_seed(0)
            target, wrap = make()
            if mode:
                compile = lambda f: smelt.compile(f, mode=mode)  # noqa: E731
                target = [compile(f) for f in target] if isinstance(target, list) else compile(target)
            step = whole = wrap(target)
            if not name.startswith('step'):
                def step():
                    with torch.no_grad():
                        return whole()
            try:
                cells.append(f'{median_us(step):12.1f}')
            except Exception as error:
                cells.append(f'{"error":>12}')
                reasons.add(str(error)[:200])
            if mode == 'reduce-overhead':
                reasons.update(_native.cuda_graphs()['reasons'])
        print(f'{name:24}' + ''.join(cells) + (f'  {"; ".join(sorted(reasons))[:300]}' if reasons else ''), flush=True)


if __name__ == '__main__':
    if not torch.cuda.is_available():
        sys.exit('this machine has no GPU')
    main(sys.argv[1:])
