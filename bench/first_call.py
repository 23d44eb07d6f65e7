"""How long a model's first call takes when it is compiled: smelt against torch.compile, both with backend="eager".

ResNet-50, GPT-2 small and BERT-base with random weights on small inputs, for inference. Each number comes from a
process of its own. There the model has been called once without a compiler, and the compiler has compiled a small
function, so that neither kernels nor imports are counted; `cold` is the first call in a process where
the compiler has done nothing yet.

  first       wall time of the first call: capture, compilation, and the computation itself
  cold        likewise, in a process of its own without the small function
  eager       the model's own call without a compiler
  over eager  what the first call takes beyond that: capture and compilation alone
  graphs      graphs, and breaks between them

Behind the ratio of first calls stands that of what they take over eager: where the model's own call is long, it is
most of smelt's first call, and no compiler that computes in its first call can be faster. `--device cuda` shows the
same on a GPU, where that call is short.

Must hold: smelt's first call at least 50 times faster, and one graph without a break.
"""
import argparse
import json
import subprocess
import sys

import torch

import measure
import models

MODELS = {'resnet50': {'batch': 1, 'size': 64}, 'gpt2': {'batch': 1, 'length': 8},
          'bert_base': {'batch': 1, 'length': 8}}
WANTED = 50


def parse_arguments():
    parser = argparse.ArgumentParser(prog='./dev bench first_call', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('models', nargs='*', metavar='MODEL', help=f'of {", ".join(MODELS)} (default: all)')
    parser.add_argument('--train', action='store_true', help='in training mode, with gradients; nothing must hold')
    parser.add_argument('--device', default='cpu', help='cpu or cuda (default: cpu)')
    parser.add_argument('--backend', default='eager', help='default: eager, the one that must hold')
    parser.add_argument('--alone', action='store_true', help='smelt without torch.compile')
    parser.add_argument('--quick', action='store_true', help='not cold, and once instead of three times')
    parser.add_argument('--json', action='store_true', help='one JSON object per model')
    parser.add_argument('--child', nargs=2, metavar=('COMPILER', 'HEAT'), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.models) - set(MODELS):
        parser.error(f'no model called {", ".join(sorted(unknown))}; there are {", ".join(MODELS)}')
    return arguments


class Smelt:
    def __init__(self):
        import smelt
        self.smelt = smelt

    def compile(self, model, backend):
        return self.smelt.compile(model, backend=backend)

    def reset(self):
        self.smelt.reset()

    def counts(self):
        stats = self.smelt.stats()
        return stats['graphs'], stats['graph_breaks']


class Dynamo:
    def compile(self, model, backend):
        return torch.compile(model, backend=backend)

    def reset(self):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()

    def counts(self):
        counters = torch._dynamo.utils.counters
        return counters['stats']['unique_graphs'], sum(counters['graph_break'].values())


def run_child(name, compiler, heat, backend, device, train):
    """One first call, as JSON on the last line."""
    compiler = {'smelt': Smelt, 'torch': Dynamo}[compiler]()
    workload = models.make(name, device, **MODELS[name])
    workload.module.train(train)
    inputs = workload.inputs[:len(workload.inputs) - workload.targets]
    with torch.set_grad_enabled(train):
        eager = min(measure.once(lambda: workload.module(*inputs), device)[0] for _ in range(4))
        if heat == 'warm':
            small = models.make('simple', device)
            compiler.compile(small.module.train(train), backend)(small.inputs[0])
            compiler.reset()
        compiled = compiler.compile(workload.module, backend)
        torch.manual_seed(0)
        first, output = measure.once(lambda: compiled(*inputs), device)
        graphs, breaks = compiler.counts()
        second, _ = measure.once(lambda: compiled(*inputs), device)
        third, _ = measure.once(lambda: compiled(*inputs), device)
        torch.manual_seed(0)
        workload.module.train(train)
        same = train or torch.equal(output, workload.module(*inputs))
    print(json.dumps({'first': first, 'later': min(second, third), 'eager': eager, 'graphs': graphs, 'breaks': breaks,
                      'same': bool(same)}))


def over_eager(run):
    return max(run['first'] - run['eager'], 1e-6)


def first_call(name, compiler, heat, arguments):
    command = [sys.executable, __file__, name, '--child', compiler, heat, '--backend', arguments.backend, '--device',
               arguments.device]
    done = subprocess.run(command + ['--train'] * arguments.train, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f'{name} with {compiler} failed:\n{done.stderr[-3000:]}')
    return json.loads(done.stdout.splitlines()[-1])


def measure_model(name, arguments):
    row = {'model': name, 'wanted': WANTED, 'failures': []}
    for compiler in ('smelt', 'torch')[:1 if arguments.alone else 2]:
        times = 1 if arguments.quick or compiler == 'torch' else 3
        best = min((first_call(name, compiler, 'warm', arguments) for _ in range(times)), key=lambda run: run['first'])
        if not arguments.quick:
            best['cold'] = first_call(name, compiler, 'cold', arguments)['first']
        row[compiler] = best
    ours = row['smelt']
    if (ours['graphs'], ours['breaks']) != (1, 0):
        row['failures'].append('not one graph without a break')
    if not ours['same']:
        row['failures'].append('differs from eager')
    if 'torch' in row:
        row['ratio'] = row['torch']['first'] / ours['first']
        row['ratio over eager'] = over_eager(row['torch']) / over_eager(ours)
        if row['ratio'] < WANTED:
            row['failures'].append(f'not {WANTED} times faster')
    return row


def show(row):
    for compiler in ('smelt', 'torch'):
        if compiler in row:
            run = row[compiler]
            cold = f'{1e3 * run["cold"]:>10.1f}' if 'cold' in run else f'{"":>10}'
            print(f'{row["model"]:<12}{compiler:<8}{1e3 * run["first"]:>10.1f}{cold}{1e3 * run["later"]:>10.1f}'
                  f'{1e3 * run["eager"]:>10.1f}{1e3 * over_eager(run):>12.1f}{run["graphs"]:>8}{run["breaks"]:>8}')
    ratio = (f'{row["ratio"]:.0f} times faster ({row["ratio over eager"]:.0f} times over eager); '
             if 'ratio' in row else '')
    print(f'{"":<12}{ratio}{", ".join(row["failures"]) or "holds"}', flush=True)


def main():
    arguments = parse_arguments()
    if arguments.child:
        return run_child(arguments.models[0], *arguments.child, arguments.backend, arguments.device, arguments.train)
    if not arguments.json:
        print(f'PyTorch {torch.__version__}, {torch.get_num_threads()} threads, {arguments.device}; milliseconds\n{"":<20}'
              f'{"first":>10}{"cold":>10}'
              f'{"later":>10}{"eager":>10}{"over eager":>12}{"graphs":>8}{"breaks":>8}')
    failed = False
    for name in arguments.models or MODELS:
        row = measure_model(name, arguments)
        failed |= bool(row['failures']) and not arguments.train
        print(json.dumps(row), flush=True) if arguments.json else show(row)
    return failed


if __name__ == '__main__':
    sys.exit(main())
