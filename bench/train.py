"""Training on the CPU: smelt against eager and torch.compile, every row in a process of its own, all in turn.

A step is zero_grad, forward, loss, backward and the optimizer. Two forms: (a) the model is compiled and the loop is the
user's; (b) the whole step is one compiled function.

  eager          milliseconds per step, median
  (a), torch     eager's time divided by theirs: how many times faster, median over the rounds; torch.compile in form (a)
  (b)            the same for the whole step
  against        torch.compile's time divided by that of (a)
  first          milliseconds of the first two steps in form (a) (the second makes the code of what the first has
                 written down), and how many times longer torch.compile's are; both with nothing cached, in a process where the compiler has compiled a small function before
  memory         peak tensor memory of a step: (a) divided by eager's, and by torch.compile's
  error          largest difference of a gradient to eager's, relative to its largest element in eager, or to a
                 millionth of the largest of all gradients (a bias in front of a softmax has none but rounding errors)

Must hold: (a) at least as fast as eager in every row and as torch.compile in the geometric mean; memory at most
torch.compile's in every row; (b) on the row simple three times faster than the better of eager and torch.compile.

With --dynamic: form (a) with sizes that are numbers (dynamic=True) against the sizes seen (dynamic=False).

  static, sizes  eager's time divided by theirs
  cost           the time of the program of any size divided by that of the other

Must hold: at most 1.1 in every row.
"""
import copy
import sys

import torch

import measure
import models
from measure import rows

SGD = lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9)
ADAM = lambda p: torch.optim.Adam(p, lr=1e-3)
ADAMW = lambda p: torch.optim.AdamW(p, lr=1e-3)
ROWS = {'simple': ({'batch': 32}, ADAM), 'mlp': ({}, ADAM), 'resnet18': ({'batch': 4, 'size': 96}, SGD),
        'resnet50': ({'batch': 2, 'size': 64}, SGD), 'gpt2_tiny': ({'batch': 4}, ADAMW),
        'gpt2': ({'batch': 1, 'length': 64}, ADAMW), 'bert_base': ({'batch': 2, 'length': 64}, ADAMW),
        'vit_tiny': ({'batch': 2}, ADAMW), 'lstm': ({}, ADAM), 'unet': ({}, ADAM), 'dlrm': ({}, ADAM)}


class Step:
    """A training step of a copy of the workload's module."""

    def __init__(self, workload, optimizer, compile=None, whole=False):
        self.module = copy.deepcopy(workload.module).train()
        self.optimizer = optimizer(self.module.parameters())
        self.loss = workload.loss
        split = len(workload.inputs) - workload.targets
        self.inputs, self.targets = workload.inputs[:split], workload.inputs[split:]
        self.model = compile(self.module) if compile and not whole else self.module
        self.call = compile(self.step) if compile and whole else self.step

    def step(self):
        self.optimizer.zero_grad()
        loss = self.loss(self.model(*self.inputs), *self.targets)
        loss.backward()
        self.optimizer.step()

    def gradients(self):
        """Of the next step, with random numbers of its own."""
        torch.manual_seed(1)
        self.call()
        return [p.grad.clone() for p in self.module.parameters() if p.grad is not None]

    def __call__(self):
        self.call()


def small(x):
    return torch.sigmoid(x) * 2


def warm_up(compile):
    compile(small)(torch.ones(8, 8, requires_grad=True)).sum().backward()


def measure_row(name, arguments):
    import smelt
    sizes, optimizer = ROWS[name]
    workload = models.make(name, **sizes)
    steps = {'eager': Step(workload, optimizer), 'a': Step(workload, optimizer, smelt.compile)}
    if not arguments.alone:
        steps['torch'] = Step(workload, optimizer, torch.compile)
    if arguments.whole:
        steps['b'] = Step(workload, optimizer, smelt.compile, whole=True)
    row = {'row': name, 'threads': torch.get_num_threads()}
    for form, step in steps.items():
        if form != 'eager':
            warm_up(torch.compile if form == 'torch' else smelt.compile)
        row[f'{form}_first'] = sum(measure.once(step)[0] for _ in range(2))
        row[f'{form}_bytes'] = measure.peak_bytes(step, step, 'cpu')
    samples = rows.in_turn(steps, arguments.seconds)
    row['eager_ms'] = rows.median_ms(samples, 'eager')
    for form in steps:
        row[f'{form}_speed'] = rows.ratio(samples, 'eager', form)
    if 'torch' in samples:
        row['against'] = rows.ratio(samples, 'torch', 'a')
    row['error'] = error_of(workload, smelt.compile)
    return row


def measure_sizes(name, arguments):
    import smelt
    sizes, optimizer = ROWS[name]
    workload = models.make(name, **sizes)
    static = lambda f: smelt.compile(f, dynamic=False)
    of_sizes = lambda f: smelt.compile(f, dynamic=True, options=rows.NEVER_SPECIALIZED)
    steps = {'eager': Step(workload, optimizer), 'static': Step(workload, optimizer, static),
             'sizes': Step(workload, optimizer, of_sizes)}
    for step in steps.values():
        step()
        step()
    samples = rows.in_turn(steps, arguments.seconds)
    return rows.cost_of_sizes(name, samples) | {'error': error_of(workload, of_sizes)}


def error_of(workload, compile):
    """Of the third step's gradients: the first are eager's. The parameters stay as they are, since an optimizer makes
    rounding errors large."""
    frozen = lambda parameters: torch.optim.SGD(parameters, lr=0.0)
    steps = Step(workload, frozen, compile), Step(workload, frozen)
    for _ in range(3):
        found, expected = (step.gradients() for step in steps)
    largest = max(gradient.abs().max() for gradient in expected)
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-6 * largest))
               for a, b in zip(found, expected, strict=True))


def failures(row):
    if row['a_speed'] < 1:
        yield 'slower than eager'
    if 'torch_bytes' in row and row['a_bytes'] > row['torch_bytes']:
        yield 'more memory'
    if row['row'] == 'simple' and row.get('b_speed', 3) < 3 * max(1, row.get('torch_speed', 1)):
        yield '(b) not three times faster'


def show(row):
    def number(key, width, digits=2):
        return f'{row[key]:>{width}.{digits}f}' if key in row else ' ' * width
    row['first_ms'], row['memory'] = 1e3 * row['a_first'], row['a_bytes'] / max(row['eager_bytes'], 1)
    if 'torch_first' in row:
        row['first_ratio'] = row['torch_first'] / row['a_first']
        row['memory_torch'] = row['a_bytes'] / max(row['torch_bytes'], 1)
    return (f'{row["row"]:<12}{number("eager_ms", 10, 3)}{number("a_speed", 8)}{number("torch_speed", 8)}'
            f'{number("b_speed", 8)}{number("against", 9)}{number("first_ms", 10, 1)}{number("first_ratio", 8, 1)}'
            f'{number("memory", 8)}{number("memory_torch", 8)}{row["error"]:>10.1e}')


def main():
    parser = rows.parser('train', __doc__, ROWS, seconds=6)
    parser.add_argument('--whole', action='store_true', help='form (b) as well')
    rows.add_dynamic(parser)
    if parser.parse_args().dynamic:
        return rows.run(parser, ROWS, measure_sizes, rows.too_dear, rows.show_sizes, rows.SIZES_HEADER)
    header = (f'{"":<12}{"eager ms":>10}{"(a)":>8}{"torch":>8}{"(b)":>8}{"against":>9}{"first ms":>10}{"torch":>8}'
              f'{"memory":>8}{"torch":>8}{"error":>10}')
    return rows.run(parser, ROWS, measure_row, failures, show, header,
                    mean='geometric mean of (a) against torch.compile')


if __name__ == '__main__':
    sys.exit(main())
