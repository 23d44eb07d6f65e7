"""torch.compile in the same process. Used once, it has wrapped functions of torch's (nn.Module.__init__, optimizers) and
may look at every frame; smelt's graphs and results are the same before and after, inside and around."""
import functools
import json
import subprocess
import sys
import textwrap

import pytest

PRELUDE = '''
import copy, json, sys, torch, smelt
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
X = torch.randn(6, 4)
'''
# Each defines make() -> (a compiled function, its arguments).
PROGRAMS = {
    'module made in forward': '''
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 3)
            def forward(self, x, y):
                loss = nn.CrossEntropyLoss()(self.linear(x), y)
                act = nn.Sequential(nn.ReLU(), nn.Softplus())
                return act(loss) + nn.MSELoss()(x, x + 1)
        def make():
            net, y = Net(), torch.arange(6) % 3
            return smelt.compile(net), (X, y)
    ''',
    'module of its own made in a function': '''
        class Scale(nn.Module):
            def __init__(self, by):
                super().__init__()
                self.by = by
                self.register_buffer('offset', torch.ones(1))
            def forward(self, x):
                return x * self.by + self.offset
        def make():
            return smelt.compile(lambda x: Scale(3)(x).sin()), (X,)
    ''',
    'copy of a module': '''
        def make():
            net = nn.ReLU()
            return smelt.compile(lambda x: copy.copy(net)(x) + 1), (X,)
    ''',
    'Adam': '''
        def make():
            net = nn.Linear(4, 4)
            optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
            def step(x):
                optimizer.zero_grad()
                loss = net(x).pow(2).mean()
                loss.backward()
                optimizer.step()
                return loss
            return smelt.compile(step), (X,)
    ''',
    'checkpoint, autocast and a custom function': '''
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2
            @staticmethod
            def backward(ctx, grad):
                return grad * 2
        def make():
            net = nn.Linear(4, 4)
            def f(x):
                with torch.autocast('cpu', torch.bfloat16):
                    y = Twice.apply(net(x))
                return y.float().sum()
            return smelt.compile(f), (X,)
    ''',
    'distributions': '''
        torch.distributions.Distribution.set_default_validate_args(False)  # as torch.compile leaves it
        def make():
            def f(x):
                normal = torch.distributions.Normal(x, torch.ones_like(x))
                return normal.log_prob(x + 1).sum() + normal.entropy().mean()
            return smelt.compile(f), (X,)
    ''',
}
RUN = '''
def outcome(make):
    torch.manual_seed(0)
    compiled, args = make()
    values = [compiled(*args).sum().item() for _ in range(3)]
    report = smelt.explain(compiled)(*args)
    return values, report.graph_count, report.op_count, [b.text for b in report.breaks]

before = {name: outcome(make) for name, make in makers.items()}
kept = {name: make() for name, make in makers.items()}
counts = {}
for name, (compiled, args) in kept.items():
    [compiled(*args) for _ in range(3)]
    counts[name] = len(smelt._compile.native_of(compiled)._segments())
torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))
after = {name: outcome(make) for name, make in makers.items()}
for name, (compiled, args) in kept.items():
    [compiled(*args) for _ in range(3)]
    native = smelt._compile.native_of(compiled)
    kept[name] = counts[name], len(native._segments()), [b['text'] for b in native._breaks()]
print(json.dumps([before, after, kept]))
'''


def run(*parts):
    """What the program prints in its last line, in a process of its own: torch.compile leaves traces."""
    program = ''.join([PRELUDE, *(textwrap.dedent(part) for part in parts)])
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@functools.cache
def outcomes():
    parts = ['makers = {}\n']
    for name, program in PROGRAMS.items():
        parts += [program, f'\nmakers[{name!r}] = make\n']
    return run(*parts, RUN)


@pytest.mark.parametrize('name', PROGRAMS)
def test_graphs_are_the_same_after_a_use_of_torch_compile(name):
    before, after, _ = outcomes()
    assert after[name][0] == pytest.approx(before[name][0], rel=1e-6) and after[name][1:] == before[name][1:]
    if name != 'copy of a module':
        assert before[name][3] == []


@pytest.mark.parametrize('name', PROGRAMS)
def test_what_was_compiled_before_is_still_good(name):
    segments, later, breaks = outcomes()[2][name]
    # What is called there is guarded, and is another function now: one more is made of each piece at most.
    assert len(breaks) <= len(outcomes()[0][name][3]) and later <= 2 * segments


# -- one inside of the other

INSIDE = '''
def f(x):
    return (x * 2).sin() + 1
net = nn.Sequential(nn.Linear(4, 4), nn.GELU())

class Plain:
    def __init__(self):
        self.by = 3
    def __call__(self, x):
        return x * self.by
    def method(self, x):
        return x + self.by
'''
THEIRS = ("torch.compile(f, backend='eager')", "torch.compile(f, backend='eager', fullgraph=True)",
          "torch.compile(net, backend='eager')", "(net.compile(backend='eager'), net)[1]",
          "torch.compile(nn.Linear(4, 4), backend='eager')", "torch.compile(backend='eager')(f)",
          "torch.compiler.disable(f)", "torch.compiler.disable(net)")
OURS = ('smelt.compile(f)', 'smelt.compile(net)', 'smelt.compile(net[0])', 'functools.partial(smelt.compile(f))',
        'smelt.compile(Plain().method)', 'smelt.compile(Plain())')


@functools.cache
def theirs_inside():
    return run(INSIDE, f'found, inners = {{}}, {THEIRS!r}\n', '''
        for text in inners:
            inner = eval(text)
            def outer(x, inner=inner):
                return inner(x.cos()).sum() + 1
            compiled = smelt.compile(outer)
            values = [compiled(X).item() for _ in range(3)] + [outer(X).item(), compiled(X).item()]
            report = smelt.explain(compiled)(X)
            found[text] = values, report.graph_count, [b.text for b in report.breaks]
        print(json.dumps(found))
    ''')


@pytest.mark.parametrize('inner', THEIRS)
def test_torch_compile_inside_of_smelt(inner):
    """It is code like any other: part of one graph, whichever of the two was called first."""
    values, graphs, breaks = theirs_inside()[inner]
    assert values == pytest.approx([values[0]] * 5, abs=1e-4)
    if 'disable' in inner:
        assert breaks and 'torch.compiler.disable' in breaks[0]
    else:
        assert (graphs, breaks) == (1, [])


@functools.cache
def ours_inside():
    return run('import functools\n', INSIDE, f'found, inners = {{}}, {OURS!r}\n', '''
        for text in inners:
            inner, values, graphs = eval(text), [], []
            def outer(x, inner=inner):
                return inner(x.cos()).sum() + 1
            def counting(gm, examples):
                graphs.append(gm)
                return gm.forward
            for backend in (counting, 'smelt'):
                torch.compiler.reset()
                # The class of a callable that is no module has no Python function as its __call__.
                compiled = torch.compile(outer, backend=backend, fullgraph=text != 'smelt.compile(Plain())')
                values += [compiled(X).item() for _ in range(3)]
            found[text] = [*values, outer(X).item()], len(graphs)
        print(json.dumps(found))
    ''')


@pytest.mark.parametrize('inner', OURS)
def test_smelt_inside_of_torch_compile(inner):
    """torch.compile comes to the code behind, as if smelt were not there."""
    values, graphs = ours_inside()[inner]
    assert values == pytest.approx([values[0]] * 7, abs=1e-4)
    assert graphs == 1 or inner == 'smelt.compile(Plain())'


def test_they_take_turns():
    """Hooks of both, in one another's calls at breaks, with gradients."""
    found = run('''
        @torch.compile(backend='eager')
        def theirs(x):
            return x.sin() * 2

        @smelt.disable
        def calls_theirs(x):
            return theirs(x) + 1

        @smelt.compile
        def ours(x):
            y = calls_theirs(x * 2)
            print(end='')
            return calls_theirs(y).cos()

        @torch.compile(backend='eager')
        def outer(x):
            torch._dynamo.graph_break()
            y = torch.compiler.disable(ours)(x.exp())
            return y * 2

        def plain(x):
            inner = lambda x: x.sin() * 2 + 1
            return inner(inner(x.exp() * 2)).cos() * 2

        ok = []
        for size in (3, 3, 4, 3, 5, 4):
            x = torch.linspace(0, 1, size, requires_grad=True)
            a, b = outer(x), plain(x)
            ga, = torch.autograd.grad(a.sum(), x)
            gb, = torch.autograd.grad(b.sum(), x)
            ok.append(torch.allclose(a, b) and torch.allclose(ga, gb, atol=1e-5))
        print(json.dumps(ok))
    ''')
    assert all(found)


def test_hooks_that_lie_on_each_other():
    # torch.compile's hook is put on top of smelt's, and smelt's on top of that: no frame may go round in a circle.
    found = run('''
        import threading
        reached, entered, leave = threading.Event(), threading.Event(), threading.Event()
        def pause(mine, other):
            mine.set()
            other.wait(60)
        def theirs(x):
            y = x.sin()
            torch._dynamo.graph_break()
            pause(entered, leave)
            return y * 2
        def ours(x, wait):
            y = x.cos()
            if wait:
                pause(reached, entered)
            return y * 3
        theirs, ours = torch.compile(theirs, backend='eager'), smelt.compile(ours)
        x, found = torch.randn(3), []
        first = threading.Thread(target=lambda: found.append(torch.allclose(ours(x, True), x.cos() * 3)))
        first.start()
        reached.wait(60)
        second = threading.Thread(target=lambda: found.append(torch.allclose(theirs(x), x.sin() * 2)))
        second.start()
        first.join()
        found += [torch.allclose(ours(x + i, False), (x + i).cos() * 3) for i in range(5)]
        leave.set()
        second.join()
        found += [torch.allclose(ours(x + i, False), (x + i).cos() * 3) for i in range(5)]
        print(json.dumps(found))
    ''')
    assert found == [True] * 12


def test_on_two_threads_at_once():
    found = run('''
        import threading
        theirs = torch.compile(lambda x: x.sin() * 2 + 1, backend='eager')
        ours = smelt.compile(lambda x: x.cos() * 2 + x.shape[0])
        wrong, start = [], threading.Barrier(2)
        def work(fn, plain):
            start.wait()
            for i in range(60):
                x = torch.randn(2 + i % 5)
                if not torch.allclose(fn(x), plain(x), atol=1e-6):
                    wrong.append(i)
        threads = [threading.Thread(target=work, args=args) for args in
                   ((theirs, lambda x: x.sin() * 2 + 1), (ours, lambda x: x.cos() * 2 + x.shape[0]))]
        [t.start() for t in threads]; [t.join() for t in threads]
        print(json.dumps(wrong))
    ''')
    assert found == []
