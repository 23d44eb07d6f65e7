"""Inference on the CPU: smelt against eager and torch.compile, every row in a process of its own, the three in turn.

  eager          milliseconds per call, median
  smelt, torch   eager's time divided by theirs: how many times faster, median over the rounds
  against        torch.compile's time divided by smelt's
  first          milliseconds of smelt's first call, and how many times longer torch.compile's is; both with nothing
                 cached, in a process where the compiler has compiled a small function before
  memory         peak tensor memory of a call, smelt's divided by torch.compile's
  error          largest difference to eager, relative to eager's largest element

Must hold: smelt at least as fast as eager and 0.95 of torch.compile in every row, faster than it in the geometric
mean; first call at most a tenth; memory at most torch.compile's.
"""
import argparse
import json
import math
import os
import subprocess
import sys

import torch

import measure
import models

ROWS = {'simple': {'batch': 32}, 'evaluate_features': {}, 'feature_pyramid': {}, 'resnet50': {'batch': 1, 'size': 224},
        'transformer_tiny': {}, 'norm_chain': {}, 'softmax': {}, 'pointwise_chain': {}, 'llama_block': {},
        'bert_base': {'batch': 1, 'length': 128}, 'gpt2': {'batch': 1, 'length': 128}, 'embedding_bag_mlp': {},
        'unet_block': {}, 'lstm_cell': {}, 'gnn_step': {}}


def parse_arguments():
    parser = argparse.ArgumentParser(prog='./dev bench cpu', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('rows', nargs='*', metavar='ROW', help=f'of {", ".join(ROWS)} (default: all)')
    parser.add_argument('--alone', action='store_true', help='smelt and eager without torch.compile')
    parser.add_argument('--threads', type=int, help="threads (default: PyTorch's choice)")
    parser.add_argument('--seconds', type=float, default=4, help='how long a row is measured (default: 4)')
    parser.add_argument('--options', default='{}', help='JSON of smelt.compile(options=...)')
    parser.add_argument('--freeze', action='store_true',
                        help="frozen weights: smelt's option freeze against torch.compile's config.freezing")
    parser.add_argument('--json', action='store_true', help='one JSON object per row')
    parser.add_argument('--child', action='store_true', help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.rows) - set(ROWS):
        parser.error(f'no row called {", ".join(sorted(unknown))}; there are {", ".join(ROWS)}')
    return arguments


def tensors_of(output):
    if isinstance(output, torch.Tensor):
        return [output]
    return [t for item in output for t in tensors_of(item)]


def difference(output, expected):
    pairs = zip(tensors_of(output), tensors_of(expected))
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in pairs)


def small(x):
    return torch.sigmoid(x) * 2


def rounds(calls, seconds):
    """Seconds per call of each, measured in turn; a sample is a loop of at least 200 microseconds."""
    loops = {}
    for name, call in calls.items():
        call()
        loops[name] = max(1, round(2e-4 / measure.once(call)[0]))

    def sample(name):
        call, times = calls[name], loops[name]
        return measure.once(lambda: [call() for _ in range(times)] and None)[0] / times
    spent = sum(sample(name) * loops[name] for name in calls)
    samples = {name: [] for name in calls}
    names = list(calls)
    for i in range(int(min(max(seconds / spent, 5), 300))):
        for name in names[i % len(names):] + names[:i % len(names)]:
            samples[name].append(sample(name))
    return samples


def run_child(name, arguments):
    import smelt
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    workload = models.make(name, **ROWS[name])
    module, inputs = workload.module.eval(), workload.inputs[:len(workload.inputs) - workload.targets]
    options = json.loads(arguments.options) | ({'freeze': True} if arguments.freeze else {})
    compilers = {'smelt': lambda f: smelt.compile(f, options=options)}
    if not arguments.alone:
        compilers['torch'] = torch.compile
        if arguments.freeze:
            import torch._inductor.config
            torch._inductor.config.freezing = True
    row = {'row': name, 'threads': torch.get_num_threads()}
    with torch.no_grad():
        calls = {'eager': lambda: module(*inputs)}
        expected = module(*inputs)
        for compiler, compile in compilers.items():
            compile(small)(torch.ones(8, 8))
            compiled = compile(module)
            row[f'{compiler}_first'], output = measure.once(lambda: compiled(*inputs))
            compiled(*inputs)
            row[f'{compiler}_error'] = difference(compiled(*inputs), expected)
            row[f'{compiler}_bytes'] = measure.peak_bytes(lambda: compiled(*inputs), lambda: None, 'cpu')
            calls[compiler] = lambda compiled=compiled: compiled(*inputs)
        samples = rounds(calls, arguments.seconds)
    row['eager_ms'] = 1e3 * measure.median(samples['eager'])
    for compiler in compilers:
        row[f'{compiler}_speed'] = measure.median([a / b for a, b in zip(samples['eager'], samples[compiler])])
    if 'torch' in samples:
        row['against'] = measure.median([a / b for a, b in zip(samples['torch'], samples['smelt'])])
    print(json.dumps(row))


def measure_row(name, arguments):
    command = [sys.executable, __file__, name, '--child', '--seconds', str(arguments.seconds), '--options',
               arguments.options]
    command += ['--alone'] * arguments.alone + ['--freeze'] * arguments.freeze
    command += ['--threads', str(arguments.threads)] if arguments.threads else []
    done = subprocess.run(command, capture_output=True, text=True,
                          env={**os.environ, 'TORCHINDUCTOR_FORCE_DISABLE_CACHES': '1'})
    if done.returncode:
        return {'row': name, 'failures': ['failed: ' + done.stderr.strip().splitlines()[-1]]}
    row = json.loads(done.stdout.splitlines()[-1])
    row['failures'] = list(failures(row))
    return row


def failures(row):
    if row['smelt_speed'] < 1:
        yield 'slower than eager'
    if 'against' not in row:
        return
    if row['against'] < 0.95:
        yield 'slower than torch.compile'
    if row['torch_first'] < 10 * row['smelt_first']:
        yield 'first call over a tenth'
    if row['smelt_bytes'] > row['torch_bytes']:
        yield 'more memory'


def show(row):
    remarks = ', '.join(row['failures']) or 'holds'
    if 'eager_ms' not in row:
        print(f'{row["row"]:<18}{remarks}', flush=True)
        return
    text = f'{row["row"]:<18}{row["eager_ms"]:>10.3f}{row["smelt_speed"]:>8.2f}'
    if 'against' in row:
        memory = row['smelt_bytes'] / max(row['torch_bytes'], 1)
        text += (f'{row["torch_speed"]:>8.2f}{row["against"]:>9.2f}{1e3 * row["smelt_first"]:>10.1f}'
                 f'{row["torch_first"] / row["smelt_first"]:>7.0f}x{memory:>8.2f}')
    else:
        text += f'{"":>8}{"":>9}{1e3 * row["smelt_first"]:>10.1f}{"":>16}'
    print(f'{text}{row["smelt_error"]:>10.1e}  {remarks}', flush=True)


def main():
    arguments = parse_arguments()
    if arguments.child:
        return run_child(arguments.rows[0], arguments)
    if not arguments.json:
        print(f'PyTorch {torch.__version__}, {arguments.threads or torch.get_num_threads()} threads\n{"":<18}'
              f'{"eager ms":>10}{"smelt":>8}{"torch":>8}{"against":>9}{"first ms":>10}{"torch":>8}{"memory":>8}'
              f'{"error":>10}')
    rows = []
    for name in arguments.rows or ROWS:
        rows.append(measure_row(name, arguments))
        print(json.dumps(rows[-1]), flush=True) if arguments.json else show(rows[-1])
    measured = [row['against'] for row in rows if 'against' in row]
    failed = any(row['failures'] for row in rows)
    if measured:
        mean = math.exp(sum(map(math.log, measured)) / len(measured))
        failed |= mean <= 1
        if not arguments.json:
            print(f'geometric mean against torch.compile: {mean:.2f}')
    return failed


if __name__ == '__main__':
    sys.exit(main())
