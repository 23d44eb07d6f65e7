"""Another build of smelt against this one: is anything slower than before? Both run the same rows in turn, each in a
process of its own, so that whatever slows the machine down meets both.

  cpu            a cached call of a model, for inference
  train          a whole training step as one compiled function
  overhead       a cached call of a function whose program computes nothing
  first_call     compiling and calling anew, with backend="eager"
  record, replay recording a forward and backward pass as a graph; running that graph

  other, this    milliseconds of a call, medians
  ratio          this build's time divided by the other's: the median over the turns and its 95 % interval

Must hold: no row is slower by more than 3 % (the lower end of the interval counts).

The other build is a directory that has the package, such as build/release of another checkout:

  ./dev bench builds ../before/build/release cpu::gpt2 overhead
"""
import argparse
import json
import os
import subprocess
import sys

import torch

import cpu
import first_call
import measure
import models
import train
from measure.timing import Timing

ALLOWED = 1.03
RECORD = {'gpt2_tiny': {'batch': 4}, 'resnet18': {'batch': 4, 'size': 96}, 'lstm': {}}
LEAST = 0.02  # seconds of a turn


# -- what the rows call: name -> function that makes a call


def of_cpu(name):
    import smelt
    module, inputs = inference(name, cpu.ROWS[name])
    return without_gradients(smelt.compile(module), inputs)


def of_train(name):
    import smelt
    sizes, optimizer = train.ROWS[name]
    return train.Step(models.make(name, **sizes), optimizer, smelt.compile, whole=True)


def of_overhead(name):
    import smelt

    def computes_nothing(graph, example_inputs):
        made = graph.run(*example_inputs)
        return lambda *inputs: made
    if name == 'two_tensors':
        add = smelt.compile(lambda a, b: a + b * 2, backend=computes_nothing)
        a, b = torch.randn(4), torch.randn(4)
        return lambda: add(a, b)
    layers = [layer for _ in range(53) for layer in (torch.nn.Conv2d(4, 4, 1, bias=False), torch.nn.BatchNorm2d(4))]
    net = smelt.compile(torch.nn.Sequential(*layers).eval(), backend=computes_nothing)
    return without_gradients(net, (torch.randn(1, 4, 2, 2),))


def of_first_call(name):
    import smelt
    module, inputs = inference(name, first_call.MODELS[name])
    with torch.no_grad():
        module(*inputs)

    def call():
        smelt.reset()
        with torch.no_grad():
            return smelt.compile(module, backend='eager')(*inputs)
    return call


def of_record(name):
    import smelt
    workload = models.make(name, **RECORD[name])
    workload.step(*workload.inputs)
    return lambda: smelt.record(workload.step, *workload.inputs)


def of_replay(name):
    workload = models.make(name, **RECORD[name])
    workload.step(*workload.inputs)
    import smelt
    graph = smelt.record(workload.step, *workload.inputs)
    return lambda: graph.run(*workload.inputs)


def inference(name, sizes):
    workload = models.make(name, **sizes)
    return workload.module.eval(), workload.inputs[:len(workload.inputs) - workload.targets]


def without_gradients(function, inputs):
    def call():
        with torch.no_grad():
            return function(*inputs)
    return call


KINDS = {'cpu': (of_cpu, cpu.ROWS), 'train': (of_train, train.ROWS), 'overhead': (of_overhead, ('two_tensors', 'net')),
         'first_call': (of_first_call, first_call.MODELS), 'record': (of_record, RECORD), 'replay': (of_replay, RECORD)}
ROWS = [f'{kind}::{name}' for kind, (_, names) in KINDS.items() for name in names]


# -- a build's process: it says the seconds of a call for each line that it is given


def serve(row):
    kind, name = row.split('::')
    torch.manual_seed(0)
    call = KINDS[kind][0](name)
    for _ in range(4):
        call()
    spent = measure.once(call)[0]
    times = max(1, round(LEAST / max(spent, 1e-7)))
    print('ready', flush=True)
    for _ in sys.stdin:
        print(measure.once(lambda: [call() for _ in range(times)] and None)[0] / times, flush=True)


class Build:
    def __init__(self, path, row, threads):
        environment = {**os.environ, 'PYTHONPATH': path, 'SMELT_LOG': ''}
        command = [sys.executable, sys.argv[0], path, row, '--serve'] + (['--threads', str(threads)] if threads else [])
        self.process = subprocess.Popen(command, env=environment, text=True, bufsize=1, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            said = self.process.stderr.read().strip().splitlines()
            raise RuntimeError(said[-1] if said else 'ended without a word')
        return line

    def turn(self):
        self.process.stdin.write('\n')
        return float(self.answer())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure_row(row, other, this, turns, threads):
    builds = []
    try:
        for path in (other, this):
            builds.append(Build(path, row, threads))
            builds[-1].answer()
        samples = ([], [])
        for turn in range(turns):
            for which in ((0, 1) if turn % 2 else (1, 0)):
                samples[which].append(builds[which].turn())
    except RuntimeError as error:
        return {'row': row, 'failures': [f'failed: {error}']}
    finally:
        for build in builds:
            build.close()
    timing = Timing(first=samples[1], second=samples[0])
    low, high = timing.interval
    failures = [f'slower by more than {ALLOWED - 1:.0%}'] if low > ALLOWED else []
    return {'row': row, 'other_ms': 1e3 * measure.median(samples[0]), 'this_ms': 1e3 * measure.median(samples[1]),
            'ratio': timing.ratio, 'low': low, 'high': high, 'failures': failures}


def show(row):
    text = f'{row["row"]:<26}'
    if 'ratio' in row:
        text += (f'{row["other_ms"]:>10.4f}{row["this_ms"]:>10.4f}{row["ratio"]:>8.3f}'
                 f'  ({row["low"]:.3f}-{row["high"]:.3f})')
    return f'{text}  {", ".join(row["failures"]) or "holds"}'


def parse_arguments():
    parser = argparse.ArgumentParser(prog='./dev bench builds', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('other', metavar='DIR', help='the other build')
    parser.add_argument('rows', nargs='*', metavar='ROW', help=f'kinds ({", ".join(KINDS)}) or rows, cpu::gpt2 (default: all)')
    parser.add_argument('--turns', type=int, default=40, help='turns of each build (default: 40)')
    parser.add_argument('--threads', type=int, help="threads (default: PyTorch's choice)")
    parser.add_argument('--json', action='store_true', help='one JSON object per row')
    parser.add_argument('--serve', action='store_true', help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for name in arguments.rows:
        if name not in KINDS and name not in ROWS:
            parser.error(f'no row called {name}; there are {", ".join(ROWS)}')
    if not os.path.isdir(os.path.join(arguments.other, 'smelt')):
        parser.error(f'{arguments.other} has no package smelt')
    return arguments


def main():
    arguments = parse_arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.serve:
        return serve(arguments.rows[0])
    import smelt
    this = os.path.dirname(os.path.dirname(smelt.__file__))
    wanted = [row for row in ROWS if not arguments.rows or row in arguments.rows or row.split('::')[0] in arguments.rows]
    if not arguments.json:
        print(f'PyTorch {torch.__version__}, {torch.get_num_threads()} threads\n'
              f'{"":<26}{"other ms":>10}{"this ms":>10}{"ratio":>8}')
    failed = False
    for row in wanted:
        found = measure_row(row, os.path.abspath(arguments.other), this, arguments.turns, arguments.threads)
        failed |= bool(found['failures'])
        print(json.dumps(found) if arguments.json else show(found), flush=True)
    return failed


if __name__ == '__main__':
    sys.exit(main())
