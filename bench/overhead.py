"""What a cached call costs on top of its tensor work: smelt against torch.compile, in one process.

  two tensors   f(a, b) = a + b * 2
  net           53 layers of convolution, batch norm and ReLU: 160 parameters, 266 tensors with the running statistics

Both compilers get a back end that computes nothing and returns a result made before, so what is left is the
call itself: finding the entry, checking the guards, handing over inputs and result. The calls take turns,
each is timed alone, and the least and the 10th percentile count: the machine does other things as well.

  overhead     microseconds of a call with that back end, less an empty loop
  eager        the function itself, and compiled with backend="eager", which runs the ops one by one

Must hold, by the 10th percentile: smelt at most 1 us for two tensors and 10 us for the net, and at most a tenth of
torch.compile's.
"""
import argparse
import gc
import json
import sys
import time

import torch
from torch import nn

import smelt

LIMITS = {'two tensors': 1.0, 'net': 10.0}
WANTED = 10


def parse_arguments():
    parser = argparse.ArgumentParser(prog='./dev bench overhead', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--quick', action='store_true', help='a fifth of the calls')
    parser.add_argument('--only', choices=LIMITS, help='one of the two functions')
    parser.add_argument('--alone', action='store_true', help='smelt without torch.compile')
    parser.add_argument('--json', action='store_true', help='one JSON object per function')
    return parser.parse_args()


def two_tensors(a, b):
    return a + b * 2


def call_net(net, x):
    return net(x)


class Layer(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


def functions():
    """name: (function, its two arguments, calls per sample, samples)"""
    net = nn.Sequential(*(Layer(4) for _ in range(53)))
    net.append(nn.Conv2d(4, 4, 1, bias=False))  # the 160th parameter
    return {'two tensors': (two_tensors, (torch.randn(4), torch.randn(4)), 20, 600),
            'net': (call_net, (net.eval(), torch.randn(1, 4, 2, 2)), 1, 3000)}


def copy_of(fn):
    """The same function with code of its own: what one compiler leaves at the code does not meet the other."""
    return type(fn)(fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)


def smelt_stub(graph, example_inputs):
    made = graph.run(*example_inputs)
    return lambda *inputs: made


def dynamo_stub(module, example_inputs):
    made = module(*example_inputs)
    return lambda *inputs: made


def variants(fn, alone):
    """name: callable of two arguments."""
    made = {'nothing': None, 'plain': fn, 'smelt': smelt.compile(copy_of(fn), backend=smelt_stub),
            'smelt eager': smelt.compile(copy_of(fn), backend='eager')}
    if not alone:
        made['torch'] = torch.compile(copy_of(fn), backend=dynamo_stub)
        made['torch eager'] = torch.compile(copy_of(fn), backend='eager')
    return made


def sample(fn, a, b, inner):
    """Nanoseconds of a call, of `inner` in a row; without a function, of the loop and the clock."""
    clock, calls = time.perf_counter_ns, range(inner)
    if fn is None:
        start = clock()
        for _ in calls:
            pass
        return (clock() - start) / inner
    start = clock()
    for _ in calls:
        fn(a, b)
    return (clock() - start) / inner


def measure_function(fn, arguments, inner, samples, alone):
    """{variant: sorted nanoseconds}"""
    a, b = arguments
    made = variants(fn, alone)
    for call in made.values():
        for _ in range(5 if call else 0):  # compiled, and on the cached path
            call(a, b)
    times = {name: [] for name in made}
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            for name, call in made.items():
                for _ in range(3):
                    sample(call, a, b, inner)
                few = name in ('plain', 'smelt eager', 'torch eager') and inner == 1  # milliseconds each
                times[name] += [sample(call, a, b, inner) for _ in range(samples // (200 if few else 20))]
    finally:
        gc.enable()
    return {name: sorted(values) for name, values in times.items()}


def summary(name, times):
    def microseconds(variant, at):
        values = times[variant]
        return (values[int(at * len(values))] - times['nothing'][0]) / 1e3

    row = {'function': name, 'limit_us': LIMITS[name], 'wanted': WANTED}
    for variant in times:
        if variant != 'nothing':
            row[variant] = {'min_us': microseconds(variant, 0), 'p10_us': microseconds(variant, 0.1),
                            'p50_us': microseconds(variant, 0.5)}
    row['failures'] = []
    if row['smelt']['p10_us'] > LIMITS[name]:
        row['failures'].append(f'more than {LIMITS[name]:g} us')
    if 'torch' in row:
        row['ratio'] = row['torch']['p10_us'] / row['smelt']['p10_us']
        if row['ratio'] < WANTED:
            row['failures'].append(f'more than 1/{WANTED} of torch.compile')
    return row


def show(row):
    print(row['function'])
    for variant, label in (('smelt', 'smelt, overhead'), ('torch', 'torch.compile, overhead'), ('plain', 'eager'),
                           ('smelt eager', 'smelt, backend="eager"'), ('torch eager', 'torch.compile, "eager"')):
        if variant in row:
            times = row[variant]
            print(f'  {label:<26}{times["min_us"]:>10.2f}{times["p10_us"]:>10.2f}{times["p50_us"]:>10.2f}')
    if 'ratio' in row:
        print(f'  smelt has 1/{row["ratio"]:.0f} of torch.compile\'s overhead')
    print(f'  must hold: {row["limit_us"]:g} us and 1/{WANTED}: {", ".join(row["failures"]) or "holds"}', flush=True)


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    if not arguments.json:
        print(f'PyTorch {torch.__version__}, 1 thread; microseconds per call\n'
              f'{"":<28}{"min":>10}{"p10":>10}{"p50":>10}')
    failed = False
    with torch.no_grad():
        for name, (fn, given, inner, samples) in functions().items():
            if arguments.only in (None, name):
                row = summary(name, measure_function(fn, given, inner, samples // (5 if arguments.quick else 1),
                                                     arguments.alone))
                failed |= bool(row['failures'])
                print(json.dumps(row), flush=True) if arguments.json else show(row)
    return failed


if __name__ == '__main__':
    sys.exit(main())
