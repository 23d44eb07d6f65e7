"""Replay against eager: every model, forward and training step, op by op through PyTorch's own kernels.

For each row one process records the function, then calls eager and graph.run in turn.

  eager, replay   milliseconds per call, median
  speed           eager's time divided by replay's, median over the pairs, and its 95 % interval;
                  must hold: replay is not slower (a row fails if its whole interval is below 1)
  memory          peak tensor memory of replay divided by eager's, parameters and inputs not counted;
                  must hold: at most 1.05
  difference      the largest between two elements of what both return and leave behind (gradients, running
                  statistics), from equal seeds; must hold: 0, bit for bit, where eager is equal to itself

A model that smelt refuses to record has its sentence in place of the numbers, and is no failure.
forward is inference (eval, no_grad); step is zero_grad, forward, loss and backward.
"""
import argparse
import json
import sys

import torch

import measure
import models
import smelt

MEMORY_ALLOWED = 1.05


def parse_arguments():
    parser = argparse.ArgumentParser(prog='./dev bench replay', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('models', nargs='*', metavar='MODEL', help=f'of {", ".join(models.ALL)} (default: all)')
    parser.add_argument('--device', default='cpu', help='cpu or cuda')
    parser.add_argument('--threads', type=int, help="threads of PyTorch's kernels (default: PyTorch's choice)")
    parser.add_argument('--quick', action='store_true', help='a second per row instead of five')
    parser.add_argument('--json', action='store_true', help='one JSON object per row')
    arguments = parser.parse_args()
    if unknown := set(arguments.models) - set(models.ALL):
        parser.error(f'no model called {", ".join(sorted(unknown))}; there are {", ".join(models.ALL)}')
    return arguments


def failures(row):
    if row['speed_interval'][1] < 1:
        yield 'slower than eager'
    if row['memory'] > MEMORY_ALLOWED:
        yield 'more memory than eager'
    if row['difference'] != 0 and row['eager_difference'] == 0:
        yield 'differs from eager'


def measure_row(name, kind, device, seconds):
    workload = models.make(name, device)
    function = getattr(workload, kind)
    function(*workload.inputs)  # eager's own first call; gradients are in place, as in the middle of a training
    try:
        record_seconds, graph = measure.once(lambda: smelt.record(function, *workload.inputs))
    except smelt.RecordError as error:
        return {'model': name, 'kind': kind, 'device': device, 'refused': str(error), 'failures': []}
    result = measure.compare(workload, function, graph, seconds, device)
    row = {'model': name, 'kind': kind, 'device': device, 'ops': len(graph), 'record_ms': 1e3 * record_seconds,
           'eager_ms': 1e3 * measure.median(result.timing.first),
           'replay_ms': 1e3 * measure.median(result.timing.second),
           'speed': result.timing.ratio, 'speed_interval': result.timing.interval, 'pairs': len(result.timing.first),
           'eager_bytes': result.eager_bytes, 'replay_bytes': result.replay_bytes, 'memory': result.memory_ratio,
           'difference': result.difference, 'eager_difference': result.eager_difference}
    row['failures'] = list(failures(row))
    return row


def show(row):
    if 'refused' in row:
        print(f'{row["model"]:<10} {row["kind"]:<8} refused: {row["refused"]}', flush=True)
        return
    low, high = row['speed_interval']
    remarks = list(row['failures'])
    if row['eager_difference']:
        remarks.append(f'eager differs from itself by {row["eager_difference"]:.3g}')
    print(f'{row["model"]:<10} {row["kind"]:<8}{row["ops"]:>5}{row["eager_ms"]:>10.3f}{row["replay_ms"]:>10.3f}'
          f'{row["speed"]:>7.2f} ({low:.2f}-{high:.2f}){row["eager_bytes"] / 2**20:>10.2f}'
          f'{row["replay_bytes"] / 2**20:>10.2f}{row["memory"]:>7.3f}{row["difference"]:>12.3g}'
          f'  {", ".join(remarks)}', flush=True)


def main():
    arguments = parse_arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if not arguments.json:
        print(f'PyTorch {torch.__version__}, {arguments.device}, {torch.get_num_threads()} threads')
        print(f'{"model":<10} {"":<8}{"ops":>5}{"eager ms":>10}{"replay ms":>10}  {"speed":<17}{"eager MiB":>10}'
              f'{"replay":>9}{"ratio":>7}{"difference":>12}', flush=True)
    failed = False
    for name in arguments.models or models.ALL:
        for kind in ('forward', 'step'):
            row = measure_row(name, kind, arguments.device, seconds=1 if arguments.quick else 5)
            failed |= bool(row['failures'])
            if arguments.json:
                print(json.dumps(row), flush=True)
            else:
                show(row)
    return failed


if __name__ == '__main__':
    sys.exit(main())
