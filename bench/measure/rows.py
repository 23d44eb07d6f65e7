"""Benches of rows: each row is measured in a process of its own, where all contestants take turns."""
import argparse
import json
import math
import os
import subprocess
import sys

import torch

from .timing import median, once


def parser(name, text, rows, seconds):
    parser = argparse.ArgumentParser(prog=f'./dev bench {name}', description=text,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('rows', nargs='*', metavar='ROW', help=f'of {", ".join(rows)} (default: all)')
    parser.add_argument('--alone', action='store_true', help='smelt and eager without torch.compile')
    parser.add_argument('--threads', type=int, help="threads (default: PyTorch's choice)")
    parser.add_argument('--seconds', type=float, default=seconds,
                        help=f'how long a row is measured (default: {seconds})')
    parser.add_argument('--json', action='store_true', help='one JSON object per row')
    parser.add_argument('--child', action='store_true', help=argparse.SUPPRESS)
    return parser


def run(parser, rows, child, failures, show, header, mean=None):
    """`child(name, arguments)` measures a row and gives a dict, for which `failures` yields what does not hold. `mean`:
    what the geometric mean of 'against' is called, which has to be above 1. Gives the exit status."""
    arguments = parser.parse_args()
    if unknown := set(arguments.rows) - set(rows):
        parser.error(f'no row called {", ".join(sorted(unknown))}; there are {", ".join(rows)}')
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.child:
        return print(json.dumps(child(arguments.rows[0], arguments)))
    if not arguments.json:
        print(f'PyTorch {torch.__version__}, {torch.get_num_threads()} threads\n{header}')
    measured = []
    for name in arguments.rows or rows:
        row = _in_child(name, arguments)
        row.setdefault('failures', list(failures(row)) if len(row) > 1 else [])
        measured.append(row)
        if arguments.json:
            print(json.dumps(row), flush=True)
        elif len(row) > 2:
            print(f'{show(row)}  {", ".join(row["failures"]) or "holds"}', flush=True)
        else:
            print(f'{name:<18}{row["failures"][0]}', flush=True)
    failed = any(row['failures'] for row in measured)
    ratios = [row['against'] for row in measured if 'against' in row]
    if mean and ratios:
        value = math.exp(sum(map(math.log, ratios)) / len(ratios))
        failed |= value < 1
        if not arguments.json:
            print(f'{mean}: {value:.2f}')
    return failed


def _in_child(name, arguments):
    options = [given for given in sys.argv[1:] if given not in arguments.rows and given != '--json']
    done = subprocess.run([sys.executable, sys.argv[0], name, '--child', *options], capture_output=True, text=True,
                          env={**os.environ, 'TORCHINDUCTOR_FORCE_DISABLE_CACHES': '1'})
    if done.returncode:
        return {'row': name, 'failures': ['failed: ' + (done.stderr.strip().splitlines() or ['no message'])[-1]]}
    return json.loads(done.stdout.splitlines()[-1])


def in_turn(calls, seconds, least=5, most=500, shortest=0.0):
    """Seconds per call of each, measured in turn; a sample is a loop of at least `shortest` seconds."""
    loops = {}
    for name, call in calls.items():
        call()
        loops[name] = max(1, round(shortest / once(call)[0]))

    def sample(name):
        call, times = calls[name], loops[name]
        if times == 1:
            return once(call)[0]
        return once(lambda: [call() for _ in range(times)] and None)[0] / times
    spent = sum(sample(name) * loops[name] for name in calls)
    samples = {name: [] for name in calls}
    names = list(calls)
    for i in range(int(min(max(seconds / spent, least), most))):
        for name in names[i % len(names):] + names[:i % len(names)]:
            samples[name].append(sample(name))
    return samples


def ratio(samples, one, other):
    """How many times longer the one takes, median over the rounds."""
    return median([a / b for a, b in zip(samples[one], samples[other])])


def median_ms(samples, name):
    return 1e3 * median(samples[name])


# -- programs of any size against those of one

NEVER_SPECIALIZED = {'specialize': False}
MOST_FOR_SIZES = 1.1
SIZES_HEADER = f'{"":<18}{"eager ms":>10}{"static ms":>11}{"static":>8}{"sizes":>8}{"cost":>8}{"error":>10}'


def add_dynamic(parser):
    parser.add_argument('--dynamic', action='store_true',
                        help='the program whose sizes are numbers against that of the sizes seen')


def cost_of_sizes(name, samples):
    return {'row': name, 'threads': torch.get_num_threads(), 'eager_ms': median_ms(samples, 'eager'),
            'static_ms': median_ms(samples, 'static'), 'static_speed': ratio(samples, 'eager', 'static'),
            'sizes_speed': ratio(samples, 'eager', 'sizes'), 'cost': ratio(samples, 'sizes', 'static')}


def too_dear(row):
    if row['cost'] > MOST_FOR_SIZES:
        yield f'sizes cost more than {MOST_FOR_SIZES}'


def show_sizes(row):
    return (f'{row["row"]:<18}{row["eager_ms"]:>10.3f}{row["static_ms"]:>11.3f}{row["static_speed"]:>8.2f}{row["sizes_speed"]:>8.2f}'
            f'{row["cost"]:>8.2f}{row["error"]:>10.1e}')
