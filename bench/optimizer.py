"""Optimizer steps on the CPU: a compiled step against eager's three forms and torch.compile.

Every row in a process of its own, the contestants in turn.

  single, foreach, fused   milliseconds per step of eager's forms, median
  smelt                    likewise of the step compiled by smelt.compile
  fastest                  the fastest eager form's time divided by smelt's, median over the rounds
  torch                    torch.compile's time divided by smelt's
  memory                   MiB of new memory at the peak of a step: the fastest eager form, smelt, torch.compile
  error                    largest difference to eager's foreach step, relative to the largest element

Must hold: smelt at least as fast as the fastest eager form and 0.95 of torch.compile, with no memory of the size of a
parameter.
"""
import math
import sys

import torch

import measure
import smelt
from measure import rows


def resnet50():
    shapes, width = [(64, 3, 7, 7), (64,), (64,)], 64
    for blocks, inner in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            convolutions = [(inner, width, 1, 1), (inner, inner, 3, 3), (4 * inner, inner, 1, 1)]
            if block == 0:
                convolutions.append((4 * inner, width, 1, 1))
            for shape in convolutions:
                shapes += [shape, (shape[0],), (shape[0],)]
            width = 4 * inner
    return [*shapes, (1000, 2048), (1000,)]


def gpt2(layers=12, width=768):
    shapes = [(50257, width), (1024, width)]
    for _ in range(layers):
        shapes += [(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,), (width,), (width,),
                   (4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    return [*shapes, (width,), (width,)]


def many_small():
    return [shape for _ in range(100) for shape in ((32, 32), (32,))]


SHAPES = {'resnet50': resnet50, 'gpt2': gpt2, 'many_small': many_small}
OPTIMIZERS = {
    'sgd': lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9, weight_decay=1e-4),
    'adamw': lambda p: torch.optim.AdamW(p, 1e-4),
}
ROWS = [f'{model}-{optimizer}' for model in SHAPES for optimizer in ('sgd', 'adamw', 'adamw-clip')]
FORMS = {'single': (False, False), 'foreach': (True, False), 'fused': (False, True)}


class Workload:
    def __init__(self, row):
        model, optimizer, *clip = row.split('-')
        torch.manual_seed(0)
        self.parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES[model]()]
        for p in self.parameters:
            p.grad = torch.randn_like(p)
        self.optimizer = OPTIMIZERS[optimizer](self.parameters)
        self.clip = bool(clip)
        self.step('foreach')

    def step(self, form):
        for group in self.optimizer.param_groups:
            group['foreach'], group['fused'] = FORMS[form]
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.parameters, 1e6, foreach=form != 'single')
        self.optimizer.step()

    def tensors(self):
        """All that a step changes."""
        states = [value for p in self.parameters for value in self.optimizer.state[p].values()]
        return [*self.parameters, *states]

    def difference(self, one, other):
        """From the same state, what do two steps leave behind?"""
        with torch.no_grad():
            one()  # compiles, for this grad mode
            start = [t.clone() for t in self.tensors()]
            one()
            left = [t.clone() for t in self.tensors()]
            for t, value in zip(self.tensors(), start):
                t.copy_(value)
            other()
            return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-30))
                       for a, b in zip(left, self.tensors()))


def compiled_by_torch(workload):
    step = torch.compile(lambda: workload.step('foreach'))
    for _ in range(3):
        step()
    return step


def measure_row(row, arguments):
    workload = Workload(row)
    calls = {name: lambda name=name: workload.step(name) for name in FORMS}
    calls['smelt'] = smelt.compile(calls['foreach'])
    first_seconds, _ = measure.once(calls['smelt'])
    if not arguments.alone:
        # A workload of its own: it marks an optimizer's groups as capturable, which eager refuses on the CPU.
        calls['torch'] = compiled_by_torch(Workload(row))
    samples = rows.in_turn(calls, arguments.seconds, least=7, most=300)
    fastest = min(FORMS, key=lambda name: measure.median(samples[name]))

    def peak(name):
        return measure.peak_bytes(calls[name], prepare=lambda: None, device='cpu') / 2**20
    result = {'row': row, 'parameters': len(workload.parameters), 'first_s': first_seconds,
              **{f'{name}_ms': rows.median_ms(samples, name) for name in calls},
              'fastest': fastest, 'against_eager': rows.ratio(samples, fastest, 'smelt'),
              'eager_mib': peak(fastest), 'smelt_mib': peak('smelt'),
              'error': workload.difference(calls['smelt'], calls['foreach'])}
    if not arguments.alone:
        result |= {'against_torch': rows.ratio(samples, 'torch', 'smelt'), 'torch_mib': peak('torch')}
    return result


def show(row):
    forms = ''.join(f'{row[f"{name}_ms"]:>9.2f}' for name in FORMS)
    return (f'{row["row"]:<22}{forms}{row["smelt_ms"]:>9.2f}{row["against_eager"]:>9.2f}'
            f'{row.get("against_torch", math.nan):>7.2f}{row["eager_mib"]:>9.2f}{row["smelt_mib"]:>7.2f}'
            f'{row.get("torch_mib", math.nan):>8.2f}{row["error"]:>10.1e}')


def failures(row):
    if row['against_eager'] < 0.97:
        yield 'slower than eager'
    if row.get('against_torch', 1) < 0.95:
        yield 'slower than torch.compile'
    if row['smelt_mib'] > 1:
        yield 'takes memory'


def main():
    header = (f'{"":<22}{"single":>9}{"foreach":>9}{"fused":>9}{"smelt":>9}{"fastest":>9}{"torch":>7}{"MiB":>9}{"smelt":>7}'
              f'{"torch":>8}{"error":>10}')
    return rows.run(rows.parser('optimizer', __doc__, ROWS, seconds=6), ROWS, measure_row, failures, show, header)


if __name__ == '__main__':
    sys.exit(main())
