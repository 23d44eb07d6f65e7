"""smelt.verify: right results pass with their differences, wrong ones are told, narrowed down and shown by a script."""
import collections
import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
import warnings

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional

import smelt
from smelt.instruments import difference, narrow


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 4))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return functional.log_softmax(self.layers(x), -1)


def test_a_model():
    net, x = Net(), torch.randn(6, 8, requires_grad=True)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = smelt.verify(net, x)
    assert found.ok and bool(found) and found.culprit is None
    assert [row.name for row in found.outputs] == ['output 0']
    gradients = {row.name for row in found.gradients}
    assert 'gradient of layers.0.weight' in gradients and 'gradient of argument 0' in gradients
    assert 'layers.1.running_mean' in {row.name for row in found.changed}
    row = found.outputs[0]
    assert row.max_abs < 1e-5 and row.compiled_from_fp64 < 1e-5 and row.eager_from_fp64 < 1e-5 and row.max_ulp < 1e4
    for name, value in net.state_dict().items():  # nothing is changed by it
        assert torch.equal(value, before[name])
    assert net.calls == 0 and x.grad is None and net.layers[0].weight.dtype is torch.float32
    text = str(found)
    assert 'agrees with eager' in text and 'ulp' in text and json.loads(found.json())['ok']


def test_a_training_step():
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())

    def step(x, y):
        optimizer.zero_grad()
        loss = functional.nll_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss
    found = smelt.verify(step, torch.randn(6, 8), torch.randint(4, (6,)))
    assert found.ok, str(found)
    changed = {row.name for row in found.changed}
    assert {'layers.0.weight', 'layers.0.weight.grad', 'layers.1.running_var'} <= changed
    assert not optimizer.state and net.layers[0].weight.grad is None


def test_random_numbers_are_the_same_ones():
    found = smelt.verify(nn.Sequential(nn.Linear(8, 8), nn.Dropout()), torch.randn(4, 8))
    assert found.ok and 'no fp64 reference: it draws random numbers' in str(found)


def test_what_is_compiled_is_verified_with_its_settings():
    found = smelt.verify(smelt.compile(torch.sin, backend='eager'), torch.randn(4))
    assert found.ok and found.settings['backend'] == 'eager' and found.outputs[0].note == 'same bits'


def test_python_values():
    found = smelt.verify(lambda x: {'a': x.exp(), 'b': (3, 'text', None, x.shape[0])}, torch.randn(4))
    assert found.ok and len(found.outputs) == 5


def test_what_runs_as_python_is_said():
    found = smelt.verify(smelt.disable(lambda x: x + 1), torch.ones(2))
    assert found.ok and 'nothing ran compiled' in str(found)


# -- a back end that is wrong


def wrong_where(op):
    """A back end whose graphs are right unless they have the op."""
    def compile(graph, example_inputs):
        if op not in str(graph):
            return graph

        def run(*inputs):
            return [output * 1.01 if output.is_floating_point() else output for output in graph(*inputs)]
        return run
    return compile


def function(x, y):
    a = (x * 2).exp()
    b = torch.tanh(a @ y)
    c = torch.sin(b + 1)
    return c.sum(0), b


def test_a_mismatch_is_narrowed_down(tmp_path):
    compiled = smelt.compile(function, backend=wrong_where('aten::sin'))
    with torch.no_grad():
        found = smelt.verify(compiled, torch.randn(4, 4), torch.randn(4, 4))
    assert not found.ok and 'DIFFERS' in str(found)
    assert [row.ok for row in found.outputs] == [False, False]
    assert found.culprit.ops == ['aten.sin.default']
    assert 'back end' in found.culprit.part and 'function' in found.culprit.segment
    text = open(found.culprit.script).read()
    assert 'torch.ops.aten.sin.default(' in text and 'aten.tanh' not in text


def test_ops_that_are_off_together():
    def wrong_pair(graph, example_inputs):
        text = str(graph)
        return wrong_where('aten::')(graph, example_inputs) if 'tanh' in text and 'sin' in text else graph
    with torch.no_grad():
        found = smelt.verify(smelt.compile(function, backend=wrong_pair), torch.randn(4, 4), torch.randn(4, 4))
    assert not found.ok and found.culprit.ops == ['aten.tanh.default', 'aten.add.Tensor', 'aten.sin.default']


@pytest.mark.parametrize('part, is_right', (
    ('fusion: right with options={"fusion": "none"}', lambda settings: settings.options.get('fusion') == 'none'),
    ('machine code', lambda settings: settings.backend == 'interpret'),
    ('the pass merge_equal', lambda settings: settings.options.get('disabled_passes') == 'merge_equal')),
    ids=('fusion', 'machine code', 'pass'))
def test_a_fault_of_the_native_back_end_is_narrowed_down(monkeypatch, part, is_right):
    """Part, segment, fusion group and op of a compiler that is wrong about sin, unless something is left out."""
    from smelt.instruments import verify
    real = verify.compiled_outcome

    def wrong(original, args, kwargs, settings, state):
        found, has_run = real(original, args, kwargs, settings, state)
        if settings.backend != 'eager' and not is_right(settings):
            found.values[0] = found.values[0] * 1.01
        return found, has_run
    monkeypatch.setattr(verify, 'compiled_outcome', wrong)
    monkeypatch.setattr(narrow, 'compiled_outcome', wrong)
    monkeypatch.setattr(narrow, '_is_off', lambda ops, first, last, settings: 'sin' in str(ops.stretch(first, last)))
    with torch.no_grad():
        found = smelt.verify(function, torch.randn(4, 4), torch.randn(4, 4))
    assert not found.ok and [row.ok for row in found.outputs] == [False, True]
    culprit = found.culprit
    assert culprit.part.startswith(part), culprit.part
    assert culprit.ops == ['aten.sin.default'] and culprit.segment.startswith('function, ')
    assert 'aten::sin' in culprit.group and 'aten::tanh' in culprit.group  # which share a kernel
    assert f'fusion group: {culprit.group}' in str(found) and os.path.exists(culprit.script)


def test_the_parts_are_tried_one_by_one():
    from smelt import _settings
    settings = _settings.check()
    assert 'the capture' in narrow.find_part(settings, lambda changed, text: True)

    def is_off_but(right):
        return lambda changed, text: text != right and text != "backend='eager'"
    assert 'the pass merge_equal' in narrow.find_part(settings, is_off_but('pass merge_equal'))
    assert 'machine code' in narrow.find_part(settings, is_off_but("backend='interpret'"))
    assert 'fusion' in narrow.find_part(settings, is_off_but("fusion='none'"))
    assert 'contracted' in narrow.find_part(settings, is_off_but("numerics='eager'"))
    assert 'a single op' in narrow.find_part(settings, is_off_but('nothing'))


def test_the_script_runs(tmp_path):
    """Made of ops that are right: it says so."""
    from smelt import _settings
    from smelt.instruments.op_list import OpList
    x = torch.randn(4, 4)
    with torch.no_grad(), OpList() as ops:
        function(functional.dropout(x), x)
    path = narrow.write_script(ops.stretch(0, len(ops.ops) - 1), _settings.check(), str(tmp_path / 'shows.py'))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 'largest difference' in done.stdout


def wrong_sin(graph, example_inputs):
    return wrong_where('aten::sin')(graph, example_inputs)


def script_of(backend):
    with torch.no_grad():
        found = smelt.verify(smelt.compile(function, backend=backend), torch.randn(64, 64), torch.randn(64, 64))
    assert found.culprit.ops == ['aten.sin.default']
    done = subprocess.run([sys.executable, found.culprit.script], capture_output=True, text=True)
    return done, open(found.culprit.script).read()


@pytest.mark.parametrize('is_registered', (False, True))
def test_the_script_has_the_back_end_of_the_user(is_registered):
    if is_registered:
        smelt.register_backend('wrong_sin', wrong_sin)
    done, text = script_of('wrong_sin' if is_registered else wrong_sin)
    assert done.returncode == 1 and 'OFF' in done.stdout, done.stderr
    assert 'import wrong_sin as backend' in text


def test_the_script_says_what_it_lacks():
    done, _ = script_of(wrong_where('aten::sin'))
    assert (done.returncode, done.stderr) == (2, 'put the back end into this script\n')


def test_the_script_has_small_tensors():
    with torch.no_grad():
        found = smelt.verify(smelt.compile(function, backend=wrong_sin), torch.randn(300, 300), torch.randn(300, 300))
    text = open(found.culprit.script).read()
    assert len(text) < 4000 and 'torch.ops.aten.sin.default(' in text


def test_the_segment_of_a_model_is_the_model():
    with torch.no_grad():
        found = smelt.verify(smelt.compile(nn.Sequential(nn.Linear(4, 4), nn.GELU()), backend=wrong_where('aten::gelu')), torch.randn(3, 4))
    assert found.culprit.segment.startswith('Sequential as a whole, ')


def test_passes_can_be_left_out():
    x = torch.randn(4, 4)
    for name in smelt._native.pass_names():
        fast = smelt.compile(function, options={'disabled_passes': name})
        for _ in range(2):
            for one, other in zip(fast(x, x), function(x, x)):
                torch.testing.assert_close(one, other)
    with pytest.raises(smelt.OptionError, match='disabled_passes'):
        smelt.compile(function, options={'disabled_passes': 'no_such_pass'})


# -- the command


def test_command(models, smelt_command):
    code, out, err = smelt_command('verify', f'{models}:make_model')
    assert code == 0 and 'agrees with eager' in out and 'gradient of head.weight' in out
    code, out, _ = smelt_command('verify', f'{models}:make_training', '--train', '--json')
    assert code == 0 and json.loads(out)['ok'] and json.loads(out)['changed']
    code, out, _ = smelt_command('verify', f'{models}:chain', '--inputs', 'torch.randn(5)', '--no-gradients')
    assert code == 0


def test_infinite_differences_are_json():
    smelt.register_backend('infinite', lambda graph, example_inputs: lambda *inputs: [output / 0 for output in graph(*inputs)])
    found = smelt.verify(smelt.compile(torch.sin, backend='infinite'), torch.ones(3))

    def refuse(text):
        raise ValueError(text)
    rows = json.loads(found.json(), parse_constant=refuse)['outputs']
    assert not found.ok and rows[0]['max_abs'] == 'inf'


def test_command_finds_a_mismatch(models, smelt_command, tmp_path):
    smelt.register_backend('wrong_softmax', wrong_where('softmax'))
    script = tmp_path / 'bad.py'
    code, out, _ = smelt_command('verify', f'{models}:make_model', '--backend', 'wrong_softmax', '--no-gradients',
                                 '--script', script)
    assert code == 1 and 'DIFFERS' in out and os.path.exists(script) and 'softmax' in script.read_text()


# -- in production


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer('steps', torch.zeros(()))
        self.seen = []

    def forward(self, x):
        self.steps += 1
        self.seen.append(x.shape[0])
        return self.linear(x).tanh()


def test_a_right_function_stays_compiled():
    model = Counter()
    fast, x = smelt.compile(model, options={'verify_every': 2}), torch.randn(3, 4)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter('error')
        for _ in range(7):
            torch.testing.assert_close(fast(x), model.linear(x).tanh())
    assert model.steps == 7 and model.seen == [3] * 7
    assert smelt.stance(fn=fast) == 'default' and smelt.stats()['cache_hits'] >= 5


def test_gradients_flow_through_a_checked_call():
    model = nn.Linear(4, 2)
    fast, x = smelt.compile(model, options={'verify_every': 1}), torch.randn(3, 4)
    for _ in range(3):
        model.zero_grad()
        fast(x).sum().backward()
    torch.testing.assert_close(model.weight.grad, x.sum(0).expand(2, 4))


def test_a_wrong_function_is_rolled_back():
    calls = []

    def wrong(graph, example_inputs):
        def run(*inputs):
            calls.append(1)
            return [output + (1.0 if len(calls) > 3 else 0.0) for output in graph(*inputs)]
        return run

    def plain(x):
        return torch.sin(x)
    fast, x = smelt.compile(plain, backend=wrong, options={'verify_every': 2}), torch.randn(4)
    with pytest.warns(RuntimeWarning, match='gave another result than eager: output 0 is off by 1.*left to Python'):
        results = [fast(x) for _ in range(8)]
    assert smelt.stance(fn=fast) == 'eager'
    assert torch.equal(results[-1], torch.sin(x)) and torch.equal(fast(x), torch.sin(x))
    smelt.stance('default', fast)
    assert not torch.equal(fast(x), torch.sin(x))


def rolled_back(plain, wrong, *args):
    """(the warning, what the call returns) of a back end that is right until its second run."""
    runs = []

    def backend(graph, example_inputs):
        def run(*inputs):
            runs.append(1)
            return graph(*inputs) if len(runs) < 2 else wrong(graph(*inputs))
        return run
    fast = smelt.compile(plain, backend=backend, options={'verify_every': 1})
    with pytest.warns(RuntimeWarning, match='left to Python') as caught:
        results = [fast(*args) for _ in range(4)]
    assert smelt.stance(fn=fast) == 'eager' and len(caught) == 1
    return str(caught[0].message), results


def test_a_compiled_call_that_raises_is_rolled_back():
    from smelt.instruments import production

    class Fails:  # as a CompiledFunction, whose own errors smelt keeps from the caller
        _bound, stance = None, 'default'
        _settings = smelt._settings.check(options={'verify_every': 1})
        _function = staticmethod(scaled)

        def _watch(self, check, every):
            pass

        def _set_stance(self, name):
            self.stance = name

        def __call__(self, *args):
            raise ArithmeticError('no luck')
    compiled = Fails()
    with pytest.warns(RuntimeWarning, match='it raised ArithmeticError: no luck.*left to Python'):
        assert production.check(compiled, (torch.ones(3),), {}).tolist() == [2.0] * 3
    assert compiled.stance == 'eager'


def test_the_warning_names_the_model_and_a_line_of_its_own():
    runs = []

    def wrong(graph, example_inputs):
        def run(*inputs):
            runs.append(1)
            return [output + (len(runs) > 1) for output in graph(*inputs)]
        return run
    fast = smelt.compile(Net().eval(), backend=wrong, options={'verify_every': 1})
    with pytest.warns(RuntimeWarning) as caught, torch.no_grad():
        for _ in range(3):
            fast(torch.randn(2, 8))
    (warning,) = caught
    assert f'smelt: Net ({__file__}:{Net.forward.__code__.co_firstlineno}) gave another result' in str(warning.message)
    assert warning.filename == __file__


def scaled(x):
    return x * 2


def test_changed_state_that_is_off_is_rolled_back():
    buffer = torch.zeros(3)

    def counts(x):
        buffer.add_(x)
        return x * 2
    text, results = rolled_back(counts, lambda outputs: [output + 1 for output in outputs], torch.ones(3))
    assert 'off by 1' in text and buffer.tolist() == [4.0] * 3 and results[-1].tolist() == [2.0] * 3


def test_a_short_dtype_is_checked_too():
    """512 roundings of bfloat16 are more than the number itself."""
    one = torch.full((8,), 2.0)
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        assert not difference.compare('', (one * 1.2).to(dtype), one.to(dtype)).ok
        assert difference.compare('', (one * (1 + 2 * torch.finfo(dtype).eps)).to(dtype), one.to(dtype)).ok
    text, _ = rolled_back(lambda x: x * 3, lambda outputs: [output * 1.3 for output in outputs], torch.ones(4, dtype=torch.bfloat16))
    assert 'output 0 is off by' in text


def test_a_step_in_production():
    def train(options):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 2))
        optimizer = torch.optim.AdamW(model.parameters())

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()
        step = step if options is None else smelt.compile(step, options=options)
        x = torch.randn(5, 4)
        return [step(x) for _ in range(6)], optimizer.state[model[0].weight]['step'].item()
    expected, steps = train(None)
    found, found_steps = train({'verify_every': 2})
    assert steps == found_steps == 6
    for one, other in zip(expected, found):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_an_error_of_the_function_is_the_functions():
    def fails(x):
        if x.shape[0] == 3:
            raise KeyError('three')
        return x * 2
    fast = smelt.compile(fails, options={'verify_every': 1})
    fast(torch.ones(2))
    with pytest.raises(KeyError, match='three'):
        fast(torch.ones(3))
    assert torch.equal(fast(torch.ones(2)), torch.full((2,), 2.0))


# -- what a checked call does to Python's objects: as often as without a check

CALLS = []
TOTAL = 0


class Tally:
    __slots__ = ('number',)
    of_all = 0

    def add(self):
        self.number += 1
        Tally.of_all += 1


class Effects(nn.Module):
    """What a call changes is in globals, closures, slots, classes and containers, some of them behind another method."""

    def __init__(self):
        super().__init__()
        self.tally, self.array = Tally(), numpy.zeros(2)
        self.tally.number = 0
        self.kept = {'set': set(), 'deque': collections.deque(), 'bytes': bytearray(), 'ordered': collections.OrderedDict(),
                     'counter': collections.Counter()}
        local = 0

        def count():
            nonlocal local
            local += 1
            return local
        self.count, self.seen = count, []
        self.see = self.seen.append

    def forward(self, x):
        global TOTAL
        TOTAL += 1
        CALLS.append(TOTAL)
        self.tally.add()
        number = self.note()
        Effects.largest = number
        return x * number + TOTAL

    def note(self):
        number = self.count()
        self.array[0] += number
        self.see(number)
        self.kept['set'].add(number)
        self.kept['deque'].append(number)
        self.kept['bytes'].extend(b'x')
        self.kept['ordered'][number] = TOTAL
        self.kept['counter']['calls'] += 1
        return number


def run_effects(options):
    global TOTAL
    TOTAL, Tally.of_all = 0, 0
    CALLS.clear()
    model = Effects()
    call = model if options is None else smelt.compile(model, options=options)
    results = [call(torch.ones(2)).tolist() for _ in range(7)]
    return (results, TOTAL, list(CALLS), model.tally.number, Tally.of_all, Effects.largest, model.array.tolist(), model.count(), model.seen,
            {name: list(kept.items()) if isinstance(kept, dict) else list(kept) for name, kept in model.kept.items()})


@pytest.mark.parametrize('every', (1, 2, 3))
def test_effects_on_objects_happen_once(every):
    assert run_effects({'verify_every': every}) == run_effects(None)


GENERATORS = {'python': lambda: random.Random(3).random, 'numpy': lambda: numpy.random.default_rng(3).random,
              'old numpy': lambda: numpy.random.RandomState(3).random_sample,
              'torch': lambda generator=torch.Generator().manual_seed(3): torch.rand((), generator=generator.manual_seed(3)).item}


@pytest.mark.parametrize('kind', GENERATORS)
def test_generators_of_the_users_own_draw_once(kind):
    def run(options):
        draw = GENERATORS[kind]()

        class Draws:
            generator = getattr(draw, '__self__', None)

        def function(x):
            return x * Draws.generator.random_sample() if kind == 'old numpy' else x + draw()
        call = function if options is None else smelt.compile(function, options=options)
        return [call(torch.ones(1, dtype=torch.float64)).item() for _ in range(7)]
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert run({'verify_every': 2}) == pytest.approx(run(None))


def test_parameters_without_sizes():
    model, x = nn.Sequential(nn.LazyLinear(4), nn.ReLU()), torch.randn(3, 5)
    for call in (lambda: smelt.verify(model, x), lambda: smelt.warmup(smelt.compile(model), [x])):
        with pytest.raises(smelt.ArgumentError, match='parameters without sizes .* call it once before'):
            call()
    fast = smelt.compile(model, options={'verify_every': 1})
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(fast(x), model(x))
    assert isinstance(model[0], nn.Linear) and smelt.verify(model, x)


def suspended():
    yield from range(50)


ITERATORS = {'list': lambda: iter([*range(20)]), 'count': itertools.count, 'map': lambda: map(int, '123456789'), 'set': lambda: iter({*range(20)}),
             'dict': lambda: iter(dict.fromkeys(range(20))), 'cycle': lambda: itertools.cycle([1, 2, 3]), 'zip': lambda: (iter(zip(range(20)))),
             'generator': suspended}


@pytest.mark.parametrize('kind', ITERATORS)
def test_an_iterator_is_advanced_once(kind):
    """It can't be put back: such calls are not checked, and a warning says so."""
    def run(options):
        iterator = ITERATORS[kind]()
        if kind == 'generator':
            next(iterator)

        def function(x):
            number = next(iterator)
            return x + (number[0] if isinstance(number, tuple) else number)
        call = function if options is None else smelt.compile(function, options=options)
        return [call(torch.ones(1)).item() for _ in range(7)]
    with pytest.warns(RuntimeWarning, match='is not checked, though verify_every asks for it: it .* an iterator of type') as warned:
        assert run({'verify_every': 2}) == run(None)
    assert len(warned) == 1


def test_iterators_that_stay_where_they_are_do_not_matter():
    numbers = itertools.count()

    def function(x):
        return x * 2 if numbers is not None else x
    fast = smelt.compile(function, options={'verify_every': 1})
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert [fast(torch.ones(1)).item() for _ in range(4)] == [2.0] * 4
    assert next(numbers) == 0


def test_what_is_not_repeatable_is_not_checked():
    """Eager itself gives another result from the same start."""
    def function(x):
        return x + time.perf_counter()
    fast = smelt.compile(lambda x: function(x) * 1, options={'verify_every': 2})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        for _ in range(6):
            fast(torch.zeros(1, dtype=torch.float64))
    assert len(caught) == 1
    assert smelt.stance(fn=fast) == 'default'
    assert [text for text in map(str, (one.message for one in caught)) if 'two eager calls from one start give different results' in text]


def test_threads_may_call_what_is_checked():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    fast, x = smelt.compile(model, options={'verify_every': 3}), torch.randn(5, 8)
    expected, wrong = model(x).detach(), []

    def work():
        with torch.no_grad():
            wrong.extend(1 for _ in range(30) if not torch.allclose(fast(x), expected, atol=1e-5))
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and smelt.stance(fn=fast) == 'default'


# -- how far apart


def test_differences():
    one = torch.tensor([1.0, 2.0, float('inf'), float('nan')])
    assert difference.compare('', one, one.clone()).note == 'same bits'
    next_up = torch.nextafter(one[:2], torch.tensor(10.0))
    found = difference.compare('', next_up, one[:2])
    assert found.max_ulp == 1 and found.ok and 1e-8 < found.max_rel < 1.3e-7
    assert not difference.compare('', torch.tensor([1.0, float('nan')]), torch.tensor([1.0, 2.0])).ok
    assert not difference.compare('', torch.tensor([1, 2]), torch.tensor([1, 3])).ok
    assert not difference.compare('', torch.ones(2), torch.ones(3)).ok
    assert difference.compare('', torch.tensor([0.0]), torch.tensor([-0.0])).ok
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        value = torch.tensor([1.0], dtype=dtype)
        assert difference.compare('', value + torch.finfo(dtype).eps, value).max_ulp == 1
    minus = torch.tensor([-1e-45])
    assert difference.compare('', minus, -minus).max_ulp == 2


# -- functions that are sensitive


def direction(a, b):
    """Of a difference, as a step of Adam is of a gradient: what is divided by its own size may be rounding alone."""
    difference = a - b
    return difference / (difference.abs() + 1e-7)


def inputs_of_direction():
    a = torch.linspace(1, 1.5, 1000)
    return a, a + torch.linspace(-1e-5, 1e-5, 1000)


def moves_inputs(size):
    """A back end that computes right, of inputs that are off by so much."""
    def compile(graph, example_inputs):
        def run(*inputs):
            return graph(*[value * (1 + size * torch.linspace(-1, 1, 1000)) for value in inputs[:1]], *inputs[1:])
        return run
    return compile


@pytest.mark.parametrize('size, is_right', ((2e-7, True), (1e-4, False)))
def test_a_result_may_be_as_far_off_as_roundings_make_it(size, is_right):
    with torch.no_grad():
        found = smelt.verify(smelt.compile(direction, backend=moves_inputs(size)), *inputs_of_direction())
    row = found.outputs[0]
    assert row.ok is is_right and row.max_abs > 1e-3 > 1e3 * row.eager_from_fp64, str(found)
    assert (row.note == 'eager moves as far when its inputs are rounded otherwise') is is_right


def test_other_roundings_move_what_is_sensitive_alone():
    from smelt.instruments.conditioning import spread_of_function
    inputs = inputs_of_direction()
    expected = direction(*inputs)
    spread, = spread_of_function(lambda a, b: (direction(a, b),), inputs, [expected])
    assert spread.dtype is torch.float64 and spread[490:510].min() > 0.1 and spread[:10].max() < 0.01
    other = expected.clone()
    other[500] += 0.5
    assert not difference.compare('', other, expected).ok and difference.compare('', other, expected, None, spread).ok
    other[0] = -other[0]
    assert not difference.compare('', other, expected, None, spread).ok


def test_a_sensitive_function_in_production_is_not_rolled_back():
    a, b = inputs_of_direction()
    changed = torch.zeros(1000)

    def step(a, b):
        changed.add_(direction(a, b))
        return direction(a, b)
    fast = smelt.compile(step, backend=moves_inputs(2e-7), options={'verify_every': 1})
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter('error')
        for count in range(1, 4):
            fast(a, b)
            torch.testing.assert_close(changed[:400], count * direction(a, b)[:400], rtol=0.2, atol=0.2)
    assert smelt.stance(fn=fast) == 'default'
    text, _ = rolled_back(direction, lambda outputs: [-output for output in outputs], a, b)
    assert 'output 0 is off by 2' in text or 'output 0 is off by 1.9' in text


def test_a_step_of_adamw_in_production_is_not_rolled_back(one_thread):
    """Weights whose gradients are rounding alone move by the learning rate, either way."""
    blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))
                           for _ in range(4))
    optimizer, x = torch.optim.AdamW(blocks.parameters()), torch.randn(2, 128, 256)

    @smelt.compile(options={'verify_every': 1})
    def step():
        optimizer.zero_grad()
        y = x
        for block in blocks:
            y = y + block(y)
        loss = y.square().mean()
        loss.backward()
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        for _ in range(3):
            optimizer.state.clear()  # each step is a first one
            step()
    assert smelt.stance(fn=step) == 'default'


def test_memory_that_was_never_written_is_no_mismatch():
    def function(x):
        return torch.empty_like(x).copy_(x).sin()
    with torch.no_grad():
        found = smelt.verify(smelt.compile(function, backend=wrong_where('aten::sin')), torch.randn(1000))
    assert not found.ok and found.culprit.ops == ['aten.sin.default']
