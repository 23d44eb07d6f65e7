"""What smelt does: a training loop, then a small transformer. ./dev demo"""
import itertools
import re
import subprocess
import sys
from pathlib import Path

import torch

import smelt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / 'bench'))
import measure  # noqa: E402
import models  # noqa: E402

HEAD, TAIL = 26, 6  # lines of the graph to show


def progress(text):
    if sys.stderr.isatty():
        print(f'\r\033[K{text}', end='', file=sys.stderr, flush=True)


def outline(graph):
    """The graph's text without its middle, and with one line for many of a kind."""
    lines = []
    for kind, group in itertools.groupby(str(graph).splitlines(), lambda line: re.match(r' *(input|smelt::\w+|)', line)[1]):
        group = [line if len(line) <= 120 else line[:117] + '...' for line in group]
        if kind and len(group) > 4:
            group[3:] = [f'  ... {len(group) - 3} more']
        lines += group
    if len(lines) > HEAD + TAIL:
        lines[HEAD:-TAIL] = [f'  ... {len(lines) - HEAD - TAIL} more']
    return '\n'.join(lines)


def table(rows):
    print()
    for name, eager, compiled, meaning in rows:
        print(f'{name:<15}{eager:>10}{compiled:>11}   {meaning}'.rstrip())


def show_compile():
    """smelt.compile on the model: what the first call and the later ones take."""
    workload = models.make('gpt2_tiny')
    model, (x, *_) = workload.module.eval(), workload.inputs
    compiled = smelt.compile(model)
    with torch.no_grad():
        wanted = model(x)
        first, got = measure.once(lambda: compiled(x))
        timing = measure.alternate(lambda: model(x), lambda: compiled(x), seconds=3)
        report = smelt.explain(compiled)(x)
        difference = max(float((out - wanted).abs().max() / wanted.abs().max()) for out in (got, compiled(x)))
    eager_ms, compiled_ms = (1e3 * measure.median(times) for times in (timing.first, timing.second))
    print('\nThe same model compiled for inference: fast = smelt.compile(model)')
    table([
        ('', 'eager', 'smelt', ''),
        ('graphs', '', f'{report.graph_count}', f'with {report.op_count} ops; {report.break_count} graph breaks'),
        ('guards', '', f'{report.guard_count}', 'what the Python code looked at, checked before each call'),
        ('first call', '', f'{1e3 * first:.1f} ms', 'runs the model while its Python code is followed'),
        ('later calls', f'{eager_ms:.2f} ms', f'{compiled_ms:.2f} ms',
         f'{timing.ratio:.2f} times as fast: guards, then generated kernels, without Python'),
        ('difference', '', f'{difference:.1e}', 'logits, relative to the largest: kernels add in another order'),
    ])


def show_record():
    """smelt.record on a training step."""
    torch.set_num_threads(1)  # the kernels are small: more threads only wait for each other
    workload = models.make('gpt2_tiny')
    workload.step(*workload.inputs)  # an eager step, so that gradients are there as in the middle of a training

    progress('recording ...')
    seconds, graph = measure.once(lambda: smelt.record(workload.step, *workload.inputs))
    progress('comparing with eager ...')
    result = measure.compare(workload, workload.step, graph, seconds=5)
    progress('')

    print(f'smelt {smelt.__version__}, PyTorch {torch.__version__}, one CPU thread. The training step of a transformer '
          f'({workload.description}):\nzero_grad, forward, loss and backward, as one graph\n')
    print(outline(graph))
    eager_ms, replay_ms = (1e3 * measure.median(times) for times in (result.timing.first, result.timing.second))
    mib = 2 ** 20
    rows = [
        ('', 'eager', 'smelt', ''),
        ('ops', '', f'{len(graph)}', 'what the step asks of PyTorch, the backward included, written down one by one'),
        ('time to record', '', f'{1e3 * seconds:.1f} ms',
         'the Python function ran once, nothing was computed; from now on it is not needed'),
        ('one step', f'{eager_ms:.2f} ms', f'{replay_ms:.2f} ms',
         f'{result.timing.ratio:.2f} times as fast: the same kernels, called without Python and autograd'),
        ('peak memory', f'{result.eager_bytes / mib:.2f} MiB', f'{result.replay_bytes / mib:.2f} MiB',
         f'{result.memory_ratio:.2f} times as much: each tensor is freed after its last use'),
        ('difference', '', f'{result.difference:g}',
         'loss and all gradients, dropout from equal seeds' + (': equal bit for bit' if not result.difference else '')),
    ]
    table(rows)


def show_training():
    """A training loop in plain PyTorch, and compiled."""
    progress('training four times ...')
    script = Path(__file__).resolve().parent / 'train.py'
    shown = subprocess.run([sys.executable, script], check=True, stdout=subprocess.PIPE, text=True).stdout
    progress('')
    print(shown)


def main():
    show_training()
    show_record()
    show_compile()


if __name__ == '__main__':
    main()
