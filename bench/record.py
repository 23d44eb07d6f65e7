"""How long it takes to write a training step of GPT-2 small down, against torch.compile's capture of the same model.

  record        wall time of smelt.record(step, ...): the function runs under the recorder, forward, loss and backward,
                then the passes, the lowering and the linking, until graph.run could be called
  torch.compile the first call of a model under torch.compile(backend="aot_eager"), forward and backward, minus a
                steady call: what capturing costs a user there. This backend generates no code, as replay does not

Both have worked on a small function before, so neither pays for imports or start-up. Must hold: recording is at least
100 times faster.
"""
import argparse
import json
import sys

import torch

import measure
import models
import smelt

WANTED = 100


def parse_arguments():
    parser = argparse.ArgumentParser(prog='./dev bench record', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--model', default='gpt2', choices=models.ALL, help='default: gpt2, the one that must hold')
    parser.add_argument('--quick', action='store_true', help='3 recordings instead of 15, and 1 steady call, not 3')
    parser.add_argument('--json', action='store_true', help='one JSON object')
    return parser.parse_args()


def record_times(workload, repetitions):
    """The time of each recording, the ops, and where the result types came from."""
    small = models.make('simple')
    smelt.record(small.step, *small.inputs)
    smelt.reset()
    times = []
    for _ in range(repetitions):
        elapsed, graph = measure.once(lambda: smelt.record(workload.step, *workload.inputs))
        times.append(elapsed)
    stats = smelt.stats()
    return times, len(graph), {tier: stats[f'shapes_{tier}'] // repetitions for tier in ('row', 'meta')}


def compile_times(workload, repetitions):
    """The first and the steady call of the model under torch.compile."""

    def compiled_step(of):
        module = torch.compile(of.module, backend='aot_eager')
        split = len(of.inputs) - of.targets

        def step():
            of.module.zero_grad()
            of.loss(module(*of.inputs[:split]), *of.inputs[split:]).backward()

        return step

    compiled_step(models.make('simple'))()
    workload.module.train()
    step = compiled_step(workload)
    first, _ = measure.once(step)
    return first, measure.median([measure.once(step)[0] for _ in range(repetitions)])


def main():
    arguments = parse_arguments()
    workload = models.make(arguments.model)
    workload.step(*workload.inputs)  # eager's own first call; gradients are in place
    times, ops, tiers = record_times(workload, 3 if arguments.quick else 15)
    record = measure.median(times)
    if not arguments.json:
        print(f'{arguments.model}: {workload.description}; PyTorch {torch.__version__}, {torch.get_num_threads()} '
              'threads')
        print(f'record, {ops} ops       {1e3 * record:9.1f} ms, median of {len(times)}; {1e3 * times[0]:.1f} ms the '
              f'first time\n  result types       {tiers["row"]} from rows, {tiers["meta"]} from meta kernels',
              flush=True)
    first, steady = compile_times(workload, 1 if arguments.quick else 3)
    capture = first - steady
    row = {'model': arguments.model, 'ops': ops, 'record_ms': 1e3 * record, 'first_record_ms': 1e3 * times[0],
           'shapes': tiers, 'compile_first_ms': 1e3 * first, 'compile_steady_ms': 1e3 * steady,
           'ratio': capture / record, 'ratio_first': capture / times[0], 'wanted': WANTED}
    if arguments.json:
        print(json.dumps(row))
    else:
        print(f'torch.compile, aot_eager {1e3 * capture:9.1f} ms = first call {1e3 * first:.1f} - steady '
              f'{1e3 * steady:.1f}')
        print(f'record is {row["ratio"]:.0f} times faster ({row["ratio_first"]:.0f} times, the first time); must hold: '
              f'{WANTED}')
    return arguments.model == 'gpt2' and row['ratio'] < WANTED


if __name__ == '__main__':
    sys.exit(main())
