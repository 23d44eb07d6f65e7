"""compute-sanitizer over kernels on a GPU: random ones against the interpreter, and small compiled programs.

    ./dev python tests/cuda/sanitize.py [--tools memcheck,racecheck,initcheck] [--seeds N] [--seconds S]

memcheck looks for accesses outside of memory, racecheck for races in shared memory, initcheck for reads of what nobody has written.
The exit status is 1 if a tool has found something. Each run takes --seconds at most.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
TOOLS = ('memcheck', 'racecheck', 'initcheck')
# smelt's own kernels are named so; PyTorch's and the libraries' are not looked at by racecheck and initcheck, which are slow.
KERNELS = 'kernel_substring=smelt_'
# Graphs have the kernels of launched programs; what is new is which addresses they are given. Racecheck fails in cuBLAS while one is captured.
ONLY_MEMCHECK = ('small graphs',)


def find_sanitizer():
    for place in (shutil.which('compute-sanitizer'), *map(str, pathlib.Path('/usr/local').glob('cuda*/bin/compute-sanitizer'))):
        if place and os.path.exists(place):
            return place
    return None


def small_programs(mode):
    """Some of each kind of kernel: rows, columns, updates, scans, a whole step."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    import smelt
    torch.manual_seed(0)
    x, index = torch.randn(37, 130, device='cuda'), torch.randint(0, 37, (50,), device='cuda')

    def pieces(x):
        return (torch.softmax(x, -1), x.sum(0), x.t().contiguous() * 2, x.cumsum(1), x.argmax(-1), x[index],
                torch.zeros_like(x).index_add(0, index, torch.ones(50, 130, device='cuda')), F.layer_norm(x, (130,)), torch.cat([x, x.exp()], 1))
    run = smelt.compile(pieces, mode=mode)
    for _ in range(6):
        for got, expected in zip(run(x), pieces(x)):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    @smelt.compile(mode=mode)
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss
    for _ in range(6):
        loss = step(torch.randn(8, 16, device='cuda'), torch.randint(0, 4, (8,), device='cuda'))
    assert loss.isfinite()
    torch.cuda.synchronize()
    print(smelt._native.cuda_graphs())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--tools', default=','.join(TOOLS))
    parser.add_argument('--seeds', type=int, default=60)
    parser.add_argument('--seconds', type=float, default=600)
    parser.add_argument('--runs', default='random kernels,small programs,small graphs')
    parser.add_argument('--small-programs', metavar='MODE', help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.small_programs:
        return small_programs(arguments.small_programs)
    sanitizer = find_sanitizer()
    if sanitizer is None:
        print('skipped: there is no compute-sanitizer, which comes with the CUDA toolkit')
        return 77
    build = ROOT / 'build' / os.environ.get('SMELT_BUILD', 'release')
    runs = {'random kernels': [str(build / 'smelt_cuda_kernels'), 'random', str(arguments.seeds)],
            'small programs': [sys.executable, __file__, '--small-programs', 'max-autotune-no-cudagraphs'],
            'small graphs': [sys.executable, __file__, '--small-programs', 'reduce-overhead']}
    if unknown := set(arguments.runs.split(',')) - set(runs):
        parser.error(f'there is no run {", ".join(sorted(unknown))}; there are {", ".join(runs)}')
    bad = 0
    for tool in arguments.tools.split(','):
        for name in arguments.runs.split(','):
            if tool != 'memcheck' and name in ONLY_MEMCHECK:
                continue
            command = runs[name]
            # How many parameters a kernel has is found by asking for one too many.
            only = ['--report-api-errors', 'no'] if tool == 'memcheck' else ['--kernel-name', KERNELS]
            with_options = [sanitizer, '--tool', tool, '--error-exitcode', '66', '--print-limit', '3', *only, *command]
            # Each allocation has a block of its own, so that what is behind it is seen; not while a graph is captured.
            environment = dict(os.environ, PYTORCH_NO_CUDA_MEMORY_CACHING='1') if name == 'small programs' and tool == 'memcheck' else None
            try:
                done = subprocess.run(with_options, env=environment, capture_output=True, text=True, timeout=arguments.seconds, check=False)
                said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
                good = done.returncode == 0
                print(f'{tool}, {name}: {"clean" if good else f"exit status {done.returncode}"}; {said[-1] if said else ""}')
                if not good:
                    print('\n'.join(line for line in said if 'Host Frame' not in line and len(line) > 11)[:1500])
            except subprocess.TimeoutExpired:
                good = False
                print(f'{tool}, {name}: not done after {arguments.seconds:g} s')
            bad += not good
    return min(bad, 1)


if __name__ == '__main__':
    sys.exit(main())
