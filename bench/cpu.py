"""Inference on the CPU: smelt against eager and torch.compile, every row in a process of its own, the three in turn.

  eager          milliseconds per call, median
  smelt, torch   eager's time divided by theirs: how many times faster, median over the rounds
  against        torch.compile's time divided by smelt's
  first          milliseconds of smelt's first two calls (the second makes the code of what the first has written
                 down), and how many times longer torch.compile's are; both with nothing cached, in a process where the compiler has compiled a small function before
  memory         peak tensor memory of a call, smelt's divided by torch.compile's
  error          largest difference to eager, relative to eager's largest element

Must hold: smelt at least as fast as eager and 0.95 of torch.compile in every row, faster than it in the geometric
mean; first call at most a tenth; memory at most torch.compile's.

With --dynamic: the program whose sizes are numbers (dynamic=True) against that for the sizes seen (dynamic=False).

  static, sizes  eager's time divided by theirs
  cost           the time of the program of any size divided by that of the other

Must hold: at most 1.1 in every row.
"""
import json
import sys

import torch

import measure
import models
from measure import rows

ROWS = {'simple': {'batch': 32}, 'evaluate_features': {}, 'feature_pyramid': {}, 'resnet50': {'batch': 1, 'size': 224},
        'transformer_tiny': {}, 'norm_chain': {}, 'softmax': {}, 'pointwise_chain': {}, 'llama_block': {},
        'bert_base': {'batch': 1, 'length': 128}, 'gpt2': {'batch': 1, 'length': 128}, 'embedding_bag_mlp': {},
        'unet_block': {}, 'lstm_cell': {}, 'gnn_step': {}}


def tensors_of(output):
    if isinstance(output, torch.Tensor):
        return [output]
    return [t for item in output for t in tensors_of(item)]


def difference(output, expected):
    pairs = zip(tensors_of(output), tensors_of(expected))
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in pairs)


def small(x):
    return torch.sigmoid(x) * 2


def measure_row(name, arguments):
    import smelt
    workload = models.make(name, **ROWS[name])
    module, inputs = workload.module.eval(), workload.inputs[:len(workload.inputs) - workload.targets]
    options = json.loads(arguments.options) | ({'freeze': True} if arguments.freeze else {})
    compilers = {'smelt': lambda f: smelt.compile(f, options=options)}
    if not arguments.alone:
        compilers['torch'] = torch.compile
        if arguments.freeze:
            from torch._inductor import config
            config.freezing = True
    row = {'row': name, 'threads': torch.get_num_threads()}
    with torch.no_grad():
        calls = {'eager': lambda: module(*inputs)}
        expected = module(*inputs)
        for compiler, compile in compilers.items():
            compile(small)(torch.ones(8, 8))
            compiled = compile(module)
            row[f'{compiler}_first'] = sum(measure.once(lambda: compiled(*inputs))[0] for _ in range(2))
            row[f'{compiler}_error'] = difference(compiled(*inputs), expected)
            row[f'{compiler}_bytes'] = measure.peak_bytes(lambda: compiled(*inputs), lambda: None, 'cpu')
            calls[compiler] = lambda compiled=compiled: compiled(*inputs)
        samples = rows.in_turn(calls, arguments.seconds, most=300, shortest=2e-4)
    row['eager_ms'] = rows.median_ms(samples, 'eager')
    for compiler in compilers:
        row[f'{compiler}_speed'] = rows.ratio(samples, 'eager', compiler)
    if 'torch' in samples:
        row['against'] = rows.ratio(samples, 'torch', 'smelt')
    return row


def measure_sizes(name, arguments):
    import smelt
    workload = models.make(name, **ROWS[name])
    module, inputs = workload.module.eval(), workload.inputs[:len(workload.inputs) - workload.targets]
    calls = {'eager': lambda: module(*inputs)}
    with torch.no_grad():
        expected = module(*inputs)
        for way, dynamic in (('static', False), ('sizes', True)):
            options = json.loads(arguments.options) | (rows.NEVER_SPECIALIZED if dynamic else {})
            compiled = smelt.compile(module, dynamic=dynamic, options=options)
            compiled(*inputs)
            calls[way] = lambda compiled=compiled: compiled(*inputs)
        error = difference(calls['sizes'](), expected)
        samples = rows.in_turn(calls, arguments.seconds, most=300, shortest=2e-4)
    return rows.cost_of_sizes(name, samples) | {'error': error}


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
    text = f'{row["row"]:<18}{row["eager_ms"]:>10.3f}{row["smelt_speed"]:>8.2f}'
    if 'against' in row:
        memory = row['smelt_bytes'] / max(row['torch_bytes'], 1)
        text += (f'{row["torch_speed"]:>8.2f}{row["against"]:>9.2f}{1e3 * row["smelt_first"]:>10.1f}'
                 f'{row["torch_first"] / row["smelt_first"]:>7.0f}x{memory:>8.2f}')
    else:
        text += f'{"":>8}{"":>9}{1e3 * row["smelt_first"]:>10.1f}{"":>16}'
    return f'{text}{row["smelt_error"]:>10.1e}'


def main():
    parser = rows.parser('cpu', __doc__, ROWS, seconds=4)
    parser.add_argument('--options', default='{}', help='JSON of smelt.compile(options=...)')
    parser.add_argument('--freeze', action='store_true',
                        help="frozen weights: smelt's option freeze against torch.compile's config.freezing")
    rows.add_dynamic(parser)
    if parser.parse_args().dynamic:
        return rows.run(parser, ROWS, measure_sizes, rows.too_dear, rows.show_sizes, rows.SIZES_HEADER)
    header = (f'{"":<18}{"eager ms":>10}{"smelt":>8}{"torch":>8}{"against":>9}{"first ms":>10}{"torch":>8}{"memory":>8}'
              f'{"error":>10}')
    return rows.run(parser, ROWS, measure_row, failures, show, header, mean='geometric mean against torch.compile')


if __name__ == '__main__':
    sys.exit(main())
