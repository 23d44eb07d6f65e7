"""Is there a model that is slower with smelt.compile than without? Many models, all with random weights, for inference
(eval) and in training (train: zero_grad, forward, loss, backward).

The models are those of bench/models in small, programs whose calls differ from each other (models/irregular.py), models
of the transformers library where it is installed, and those of `--suite DIR`: a directory with models_plain.py, whose PLAIN
gives a function per name that returns (module, args, kwargs), and models_hf.py, whose build(name) does for the names in HF.

  eager ms   of a call, median
  first      eager's time for the first 300 calls divided by smelt's, compiling included
  steady     likewise for a call behind these, median over the rounds
  compiled   graphs, graph breaks and recompiles

The first compilation in a process, of a small function, is not counted. Eager and compiled calls take turns, so that whatever slows the machine down meets both. At the end come all rows with a
figure below 1.

Must hold: steady at least 0.97 and first at least 1 in each row.
"""
import argparse
import importlib.util
import json
import subprocess
import sys
import time
import warnings

import torch

import models
from measure import median
from models import huggingface, irregular

SMALL = {'simple': {}, 'mlp': {'width': 64}, 'resnet18': {'batch': 1, 'size': 32}, 'gpt2_tiny': {'length': 32},
         'lstm': {'batch': 4, 'length': 8}, 'unet': {'batch': 1, 'size': 32}, 'dlrm': {'rows': 100},
         'vit_tiny': {'batch': 1, 'size': 64, 'layers': 4}}
FIRST, LEAST_FIRST, LEAST_STEADY = 300, 1.0, 0.97
MODES = ('eval', 'train')


def parse_arguments():
    parser = argparse.ArgumentParser(prog='./dev bench zoo', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('rows', nargs='*', metavar='ROW', help='such as irregular::layer_drop::train (default: all)')
    parser.add_argument('--suite', metavar='DIR', help='more models')
    parser.add_argument('--match', metavar='TEXT', default='', help='rows whose name has this in it')
    parser.add_argument('--shard', metavar='I/N', default='0/1', help='every Nth row, from the Ith on')
    parser.add_argument('--eval', dest='modes', action='append_const', const='eval', help='inference only')
    parser.add_argument('--train', dest='modes', action='append_const', const='train', help='training only')
    parser.add_argument('--quick', action='store_true', help='a quarter of the calls; `first` is not judged')
    parser.add_argument('--threads', type=int, help="threads (default: PyTorch's choice); with 1, other programs disturb less")
    parser.add_argument('--list', action='store_true', help='the names of the rows')
    parser.add_argument('--json', action='store_true', help='one JSON object per row')
    parser.add_argument('--child', action='store_true', help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.modes = arguments.modes or list(MODES)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    return arguments


# -- where models come from: name -> function that makes a Program


def sources(suite):
    found = {f'bench::{name}': lambda name=name: of_workload(models.make(name, **SMALL[name])) for name in SMALL}
    found.update((f'irregular::{make.__name__}', make) for make in irregular.ALL)
    if suite:
        found.update(of_suite(suite))
    elif importlib.util.find_spec('transformers'):
        found.update((f'transformers::{name}', lambda name=name: huggingface.make(name)) for name in huggingface.ROWS)
    return found


def of_workload(workload):
    split = len(workload.inputs) - workload.targets
    return irregular.Program(workload.module, [(workload.inputs[:split], {})],
                             lambda output, args: workload.loss(output, *workload.inputs[split:]))


def of_suite(directory):
    sys.path.insert(0, directory)
    if importlib.util.find_spec('tv_shim'):
        importlib.import_module('tv_shim').install()
    plain = importlib.import_module('models_plain').PLAIN
    yield from ((f'plain::{name}', lambda make=make: of_triple(*make())) for name, make in plain.items())
    if importlib.util.find_spec('transformers'):
        suite = importlib.import_module('models_hf')
        yield from ((f'hf::{name}', lambda name=name: of_triple(*suite.build(name))) for name in suite.HF)


def of_triple(module, args, kwargs):
    def loss(output, args):
        named = getattr(output, 'loss', None)
        return named if isinstance(named, torch.Tensor) else irregular.mean_square(output, args)
    return irregular.Program(module, [(args, kwargs)], loss)


# -- measuring


def measure_row(name, make, train, quick):
    import smelt
    torch.manual_seed(0)
    program = make()
    if not (program.trains if train else program.evaluates):
        return None
    program.module.train(train)
    twin = program.copy()
    for _ in range(2):
        program.call(program.module, 0, train)
    before = smelt.stats()
    compiled = smelt.compile(twin.module)
    calls = ((lambda turn: program.call(program.module, turn, train)), (lambda turn: twin.call(compiled, turn, train)))
    first = FIRST // 4 if quick else FIRST
    samples = run_in_turn(calls, first)
    spent = sum(map(sum, samples))
    steady = run_in_turn(calls, min(max(int(1.0 * first * 2 / spent), 30), first), len(samples[0]))
    after = smelt.stats()
    counts = [after[key] - before[key] for key in ('graphs', 'graph_breaks', 'recompiles')]
    return {'row': name, 'eager_ms': 1e3 * median(steady[0]), 'first': sum(samples[0]) / sum(samples[1]),
            'steady': ratio(*steady), 'counts': counts, 'first_call_ms': 1e3 * samples[1][0]}


def run_in_turn(calls, rounds, start=0):
    """Seconds of each call, one list per contestant."""
    clock, samples = time.perf_counter, ([], [])
    for turn in range(start, start + rounds):
        for which in ((0, 1) if turn % 2 else (1, 0)):
            begin = clock()
            calls[which](turn)
            samples[which].append(clock() - begin)
    return samples


def ratio(eager, compiled):
    """Of groups of rounds, so that calls which differ from each other are weighed as they come."""
    size = max(len(eager) // 10, 1)
    groups = range(0, len(eager) - size + 1, size)
    return median([sum(eager[i:i + size]) / sum(compiled[i:i + size]) for i in groups])


def run_child(arguments):
    """Measures the rows one after the other; a JSON object for each."""
    import smelt
    warnings.simplefilter('ignore')
    found = sources(arguments.suite)
    smelt.compile(lambda x: torch.sigmoid(x) * 2)(torch.ones(8, 8, requires_grad=True)).sum().backward()
    for name in arguments.rows:
        source, mode = name.rsplit('::', 1)
        try:
            row = measure_row(name, found[source], mode == 'train', arguments.quick)
        except Exception as error:
            row = {'row': name, 'failed': f'{type(error).__name__}: {error}'.splitlines()[0][:200]}
        print('row ' + json.dumps(row or {'row': name}), flush=True)


def measure_rows(names, arguments):
    """In child processes: one that dies takes one row with it."""
    options = ['--child'] + ['--suite', arguments.suite] * bool(arguments.suite) + ['--quick'] * arguments.quick
    options += ['--threads', str(arguments.threads)] * bool(arguments.threads)
    while names:
        some, done = names[:12], 0
        child = subprocess.Popen([sys.executable, __file__, *some, *options], stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, text=True)
        for line in child.stdout:
            if line.startswith('row '):
                done += 1
                yield json.loads(line[4:])
        if child.wait() and done < len(some):
            yield {'row': some[done], 'failed': f'the process died with status {child.returncode}'}
            done += 1
        names = names[done:]


def failures(row, quick):
    if 'failed' in row:
        yield row['failed']
        return
    if row['steady'] < LEAST_STEADY:
        yield 'slower than eager'
    if row['first'] < LEAST_FIRST and not quick:
        yield f'slower over {FIRST} calls'


def show(row):
    if 'failed' in row:
        return f'{row["row"]:<44}{row["failed"]}'
    return (f'{row["row"]:<44}{row["eager_ms"]:>9.2f}{row["first_call_ms"]:>10.0f}{row["first"]:>8.2f}{row["steady"]:>8.2f}  '
            f'{"/".join(map(str, row["counts"])):<12}{", ".join(row["failures"])}')


def main():
    arguments = parse_arguments()
    if arguments.child:
        return run_child(arguments)
    names = arguments.rows or [f'{name}::{mode}' for name in sources(arguments.suite) for mode in arguments.modes]
    part, parts = map(int, arguments.shard.split('/'))
    names = [name for name in names if arguments.match in name][part::parts]
    if arguments.list:
        return print('\n'.join(names))
    header = f'{"":<44}{"eager ms":>9}{"1st ms":>10}{"first":>8}{"steady":>8}  compiled'
    if not arguments.json:
        print(f'PyTorch {torch.__version__}, {torch.get_num_threads()} threads\n{header}')
    measured = []
    for row in measure_rows(names, arguments):
        if len(row) == 1:
            continue
        row['failures'] = list(failures(row, arguments.quick))
        measured.append(row)
        print(json.dumps(row) if arguments.json else show(row), flush=True)
    low = [row for row in measured if 'failed' in row or min(row['first'], row['steady']) < 1]
    if not arguments.json:
        print(f'\n{len(measured)} rows, {len(low)} with a figure below 1')
        print(*map(show, low), sep='\n')
    return any(row['failures'] for row in measured)


if __name__ == '__main__':
    sys.exit(main())
