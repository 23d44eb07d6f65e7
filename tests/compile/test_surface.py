"""smelt.compile as a user meets it: what it takes, what it returns, what it refuses, and what it tells."""
import copy
import functools
import gc
import inspect
import json
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import types
import typing
import weakref

import pytest
import torch

import smelt

MODES = ['default', 'reduce-overhead', 'max-autotune', 'max-autotune-no-cudagraphs', 'lite']


def scaled(x, scale=2.0, *, shift: float = 1.0) -> torch.Tensor:
    """x, scaled and shifted."""
    return (x * scale + shift).relu()


@smelt.compile
def decorated(x):
    return x.sin() + 1


@smelt.compile(fullgraph=True)
def decorated_with_arguments(x):
    return x.cos() * 2


class Scaler:
    factor = 3

    def __init__(self, offset):
        self.offset = offset

    def apply(self, x):
        return x * self.factor + self.offset

    @smelt.compile
    def compiled_apply(self, x):
        return x * self.factor + self.offset

    @smelt.compile
    @classmethod
    def of_class(cls, x):
        return x * cls.factor

    @staticmethod
    @smelt.compile
    def of_nothing(x):
        return x - 1

    def __call__(self, x):
        return self.apply(x).tanh()


def twice(fn, *args, **kwargs):
    """The function's results, of the call that compiles and of one that does not."""
    first, second = fn(*args, **kwargs), fn(*args, **kwargs)
    torch.testing.assert_close(first, second)
    return second


def same(compiled, fn, *args, **kwargs):
    torch.testing.assert_close(twice(compiled, *args, **kwargs), fn(*args, **kwargs))


# -- what can be compiled


@pytest.mark.parametrize('args, kwargs', [((), {}), ((3.0,), {}), ((), {'scale': 0.5}), ((3.0,), {'shift': -1.0})])
def test_a_function(args, kwargs):
    same(smelt.compile(scaled), scaled, torch.randn(5), *args, **kwargs)


def test_wrong_arguments_raise_what_the_function_raises():
    for call in (lambda f: f(), lambda f: f(torch.ones(2), 1, 2), lambda f: f(torch.ones(2), wrong=1)):
        with pytest.raises(TypeError) as expected:
            call(scaled)
        with pytest.raises(TypeError) as raised:
            call(smelt.compile(scaled))
        assert str(raised.value) == str(expected.value)


def test_a_lambda_and_a_closure():
    offset = 1

    def add(x):
        return x + offset

    x = torch.randn(3)
    same(smelt.compile(lambda x: x * 2), lambda x: x * 2, x)
    compiled = smelt.compile(add)
    same(compiled, add, x)
    offset = 5
    same(compiled, add, x)


def test_decorators():
    x = torch.randn(4)
    torch.testing.assert_close(twice(decorated, x), x.sin() + 1)
    torch.testing.assert_close(twice(decorated_with_arguments, x), x.cos() * 2)


def test_a_bound_method_stays_bound():
    scaler, x = Scaler(1), torch.randn(4)
    compiled = smelt.compile(scaler.apply)
    assert isinstance(compiled, types.MethodType)
    assert compiled.__self__ is scaler and compiled.__name__ == 'apply'
    same(compiled, scaler.apply, x)
    scaler.offset = 7
    same(compiled, scaler.apply, x)


def test_decorated_methods():
    x = torch.randn(4)
    for scaler in (Scaler(1), Scaler(2)):
        torch.testing.assert_close(twice(scaler.compiled_apply, x), scaler.apply(x))
        torch.testing.assert_close(Scaler.compiled_apply(scaler, x), scaler.apply(x))
    torch.testing.assert_close(twice(Scaler.of_class, x), x * 3)
    torch.testing.assert_close(twice(Scaler(0).of_class, x), x * 3)
    torch.testing.assert_close(twice(Scaler.of_nothing, x), x - 1)
    torch.testing.assert_close(twice(Scaler(0).of_nothing, x), x - 1)


def test_a_callable_object_keeps_its_class_and_attributes():
    scaler, x = Scaler(1), torch.randn(4)
    compiled = smelt.compile(scaler)
    assert isinstance(compiled, Scaler) and compiled.offset == 1 and compiled.factor == 3
    same(compiled, scaler, x)
    compiled.offset = 10
    assert scaler.offset == 10
    same(compiled, scaler, x)
    torch.testing.assert_close(compiled.apply(x), scaler.apply(x))


def test_a_callable_object_with_slots_or_storage_of_its_own():
    class Slotted:
        __slots__ = ('a',)

        def __call__(self, x):
            return x + self.a

    class Named(dict):
        def __call__(self, x):
            return x + self['a']

    slotted, named, x = Slotted(), Named(a=1), torch.randn(4)
    slotted.a = 2
    same(smelt.compile(slotted), slotted, x)
    same(smelt.compile(named), named, x)


def test_a_partial():
    partial = functools.partial(scaled, scale=4.0)
    compiled, x = smelt.compile(partial), torch.randn(4)
    assert isinstance(compiled, functools.partial) and compiled.keywords == {'scale': 4.0}
    same(compiled, partial, x)


@pytest.mark.parametrize('fn', [torch.sin, torch.nn.functional.relu, torch.Tensor.cos, torch.ops.aten.sin.default,
                                abs, functools.lru_cache(scaled), type('Box', (), {'__init__': lambda self, x: None})])
def test_other_callables_just_call(fn):
    compiled, x = smelt.compile(fn), torch.randn(4)
    if isinstance(fn, type):
        assert isinstance(compiled(x), fn)
    else:
        same(compiled, fn, x)


def test_compiling_twice_does_not_wrap_twice():
    once = smelt.compile(scaled)
    again = smelt.compile(once, mode='max-autotune')
    assert again is not once and again.__wrapped__ is scaled
    scaler = Scaler(1)
    assert smelt.compile(smelt.compile(scaler.apply)).__func__.__wrapped__ is Scaler.apply
    same(again, scaled, torch.randn(3))


def test_a_compiled_function_inside_another():
    inner = smelt.compile(scaled)

    @smelt.compile
    def outer(x):
        return inner(x) + decorated(x)

    x = torch.randn(4)
    torch.testing.assert_close(twice(outer, x), scaled(x) + x.sin() + 1)
    assert smelt.explain(outer)(x).break_count == 0


def test_recursion():
    @smelt.compile
    def power(x, n):
        return x if n == 0 else power(x * 2, n - 1) + 1

    def plain(x, n):
        return x if n == 0 else plain(x * 2, n - 1) + 1

    same(power, plain, torch.randn(3), 5)

    @smelt.compile
    def endless(x):
        return endless(x + 1)

    with pytest.raises(RecursionError):
        endless(torch.ones(1))


# -- it looks like the function


def test_it_looks_like_the_function():
    scaled.mark = 'a'
    try:
        compiled = smelt.compile(scaled)
    finally:
        del scaled.mark
    assert (compiled.__name__, compiled.__qualname__, compiled.__module__) == ('scaled', 'scaled', __name__)
    assert compiled.__doc__ == 'x, scaled and shifted.' and compiled.mark == 'a'
    assert compiled.__wrapped__ is scaled and compiled.__defaults__ == (2.0,)
    assert compiled.__kwdefaults__ == {'shift': 1.0} and compiled.__code__ is scaled.__code__
    assert compiled.__annotations__ == scaled.__annotations__
    assert typing.get_type_hints(compiled) == typing.get_type_hints(scaled)
    assert inspect.signature(compiled) == inspect.signature(scaled)
    assert inspect.getsource(compiled) == inspect.getsource(scaled)
    assert repr(compiled) == f'<smelt.compile of {scaled!r}>'
    assert compiled == compiled and compiled != smelt.compile(scaled) and len({compiled, compiled}) == 1
    compiled.extra = 1
    assert compiled.extra == 1 and not hasattr(scaled, 'extra')


def test_a_builtin_looks_like_itself():
    compiled = smelt.compile(torch.sin)
    assert compiled.__name__ == 'sin' and compiled.__wrapped__ is torch.sin


def test_defaults_set_later_count():
    def f(x, n=1):
        return x + n

    compiled, x = smelt.compile(f), torch.zeros(1)
    assert twice(compiled, x) == 1
    compiled.__defaults__ = (5,)
    assert twice(compiled, x) == 5


def test_copies_are_the_function_itself():
    compiled = smelt.compile(scaled)
    assert copy.copy(compiled) is compiled and copy.deepcopy(compiled) is compiled
    scaler = Scaler(1)
    method = copy.deepcopy(smelt.compile(scaler.apply))
    assert method.__self__ is not scaler
    torch.testing.assert_close(method(torch.ones(2)), scaler.apply(torch.ones(2)))


def test_pickle():
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    compiled = pickle.loads(pickle.dumps(smelt.compile(scaled, mode='max-autotune', fullgraph=True)))
    assert compiled.__wrapped__ is scaled and compiled._settings.mode == 'max-autotune' and compiled._settings.fullgraph
    same(compiled, scaled, torch.randn(3))
    scaler = pickle.loads(pickle.dumps(smelt.compile(Scaler(4))))
    assert isinstance(scaler, Scaler) and scaler.offset == 4
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(smelt.compile(lambda x: x))


# -- its arguments


@pytest.mark.parametrize('mode', [*MODES, None])
def test_modes(mode):
    same(smelt.compile(scaled, mode=mode), scaled, torch.randn(4))


@pytest.mark.parametrize('dynamic, segments', [(None, 2), (True, 1), (False, 3)])
def test_dynamic(dynamic, segments):
    compiled = smelt.compile(scaled, dynamic=dynamic)
    for size in (3, 4, 5):
        same(compiled, scaled, torch.randn(size))
    assert len(smelt.explain(compiled)(torch.ones(5)).segments) == segments


@pytest.mark.parametrize('keywords, error, listed', [
    ({'mode': 'fast'}, ValueError, MODES),
    ({'mode': 3}, ValueError, MODES),
    ({'backend': 'inductor'}, ValueError, ['native', 'eager']),
    ({'backend': 3}, ValueError, ['native', 'eager']),
    ({'options': {'fuse': 1}}, ValueError, ['freeze', 'fusion', 'max_fused_nodes', 'numerics', 'recompile_limit']),
    ({'options': {'fusion': 'all'}}, ValueError, ['none', 'pointwise', 'full']),
    ({'options': {'freeze': 1}}, ValueError, ['freeze', 'True', 'False']),
    ({'options': {'background': 1}}, ValueError, ['background', 'True', 'False']),
    ({'options': {'numerics': 'fast'}}, ValueError, ['default', 'eager']),
    ({'options': {'max_fused_nodes': 0}}, ValueError, ['at least 1']),
    ({'options': {'recompile_limit': True}}, ValueError, ['at least 1']),
    ({'options': ['fusion']}, TypeError, ['fusion']),
    ({'dynamic': 'yes'}, ValueError, ['None, True or False']),
    ({'fullgraph': 'yes'}, ValueError, ['True or False']),
    ({'disable': 1}, ValueError, ['True or False']),
    ({'full_graph': True}, TypeError, ['mode', 'backend', 'dynamic', 'fullgraph', 'options', 'disable']),
])
def test_what_it_does_not_know_is_an_error_that_lists_what_it_does(keywords, error, listed):
    for call in (lambda: smelt.compile(scaled, **keywords), lambda: smelt.compile(**keywords)):
        with pytest.raises(smelt.Error) as raised:
            call()
        assert isinstance(raised.value, error)
        assert all(word in str(raised.value) for word in listed)


@pytest.mark.parametrize('value', [3, 'model', [torch.sin], property(lambda self: 1)])
def test_what_is_not_callable(value):
    with pytest.raises(smelt.Error, match=type(value).__name__) as raised:
        smelt.compile(value)
    assert isinstance(raised.value, TypeError)


def test_options():
    options = {'background': True, 'freeze': True, 'fusion': 'none', 'max_fused_nodes': 4, 'numerics': 'eager', 'recompile_limit': 2}
    same(smelt.compile(scaled, options=options), scaled, torch.randn(4))


def test_arguments_of_torch_compile():
    """Those that are something else here say what."""
    with pytest.warns(RuntimeWarning, match='was compiled 2 times'):
        compiled = smelt.compile(lambda x: torch.tanh(x) * x.shape[0], backend=None, mode=None, dynamic=False, recompile_limit=2)
        for size in range(2, 8):
            compiled(torch.ones(size))
    for keywords, said in (({'name': 'step'}, "no argument 'name'; 'name': leave it out"),
                           ({'isolate_recompiles': True}, 'a limit of its own'),
                           ({'shapes_spec': None}, 'smelt.mark_dynamic'),
                           ({'name': 'step', 'nothing': 1}, "there are 'mode', .*'recompile_limit'")):
        with pytest.raises(smelt.ArgumentError, match=said):
            smelt.compile(torch.sin, **keywords)
    for keywords, said in (({'recompile_limit': 0}, 'an int of at least 1, not 0'),
                           ({'recompile_limit': 2, 'options': {'recompile_limit': 2}}, 'here it is both')):
        with pytest.raises(smelt.OptionError, match=said):
            smelt.compile(torch.sin, **keywords)


def test_disable_argument():
    assert smelt.compile(scaled, disable=True) is scaled
    assert smelt.compile(disable=True)(scaled) is scaled


def test_the_emergency_brake():
    program = textwrap.dedent('''
        import torch, smelt
        def f(x): return x + 1
        model = torch.nn.Linear(2, 2)
        assert smelt.compile(f) is f and smelt.compile(model) is model and smelt.compile()(f) is f
        try:
            smelt.compile(f, mode='fast')
        except smelt.Error:
            print('still checked')
        report = smelt.explain(f)(torch.ones(2))
        print('SMELT_DISABLE' in str(report), smelt.stats()['segments'])
    ''')
    env = {**os.environ, 'SMELT_DISABLE': '1'}
    done = subprocess.run([sys.executable, '-c', program], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == 'still checked\nTrue 0\n'


@pytest.mark.parametrize('value, off', [('1', True), ('true', True), ('0', False), ('', False)])
def test_values_of_the_brake(monkeypatch, value, off):
    monkeypatch.setenv('SMELT_DISABLE', value)
    assert (smelt.compile(scaled) is scaled) == off


# -- back ends


def test_the_eager_back_end():
    x = torch.randn(4, requires_grad=True)
    compiled = smelt.compile(scaled, backend='eager')
    same(compiled, scaled, x)
    compiled(x).sum().backward()
    assert torch.equal(x.grad, torch.autograd.grad(scaled(x).sum(), x)[0])


def test_a_function_as_back_end():
    seen = []

    def backend(graph, example_inputs):
        seen.append((str(graph), [tuple(t.shape) for t in example_inputs]))
        return graph

    compiled, x = smelt.compile(scaled, backend=backend), torch.randn(4)
    same(compiled, scaled, x)
    assert len(seen) == 1 and 'relu' in seen[0][0] and (4,) in seen[0][1]


def test_registered_back_ends():
    calls = []

    @smelt.register_backend
    def counting(graph, example_inputs):
        calls.append('counting')
        return graph

    @smelt.register_backend('other name')
    def other(graph, example_inputs):
        calls.append('other')
        return graph

    smelt.register_backend('third', lambda graph, example_inputs: graph)
    assert {'native', 'eager', 'counting', 'other name', 'third'} <= set(smelt.list_backends())
    assert callable(counting) and callable(other)
    for name in ('counting', 'other name', 'third'):
        same(smelt.compile(scaled, backend=name), scaled, torch.randn(3))
    assert calls == ['counting', 'other']
    with pytest.raises(smelt.Error, match='counting'):
        smelt.compile(scaled, backend='no such')


@pytest.mark.parametrize('args', [('native', lambda g, e: g), (3,), ('name', 3)])
def test_back_ends_that_cannot_be_registered(args):
    with pytest.raises(smelt.Error):
        smelt.register_backend(*args)


def test_a_back_end_that_raises():
    def broken(graph, example_inputs):
        raise LookupError('no such machine')

    with pytest.raises(LookupError, match='no such machine'):
        smelt.compile(scaled, backend=broken)(torch.ones(2))


# -- fullgraph and disable


def breaking(x):
    y = x + 1
    if y.sum() > 0:
        return y * 2
    return y * 3


def test_fullgraph():
    x = torch.randn(4)
    same(smelt.compile(scaled, fullgraph=True), scaled, x)
    with pytest.raises(smelt.BreakError) as raised:
        smelt.compile(breaking, fullgraph=True)(x)
    line = inspect.getsourcelines(breaking)[1] + 2
    assert isinstance(raised.value, smelt.Error)
    assert f'{os.path.basename(__file__)}:{line}' in str(raised.value) and 'torch.where' in str(raised.value)


def test_disable():
    seen = []

    @smelt.disable
    def inside(x):
        seen.append(smelt.is_compiling())
        return x * 2

    @smelt.disable(reason='prints')
    def also(x):
        return x + 1

    def f(x):
        return also(inside(x + 1)) - 1

    compiled, x = smelt.compile(f), torch.randn(3)
    same(compiled, f, x)
    assert seen == [False] * 3
    report = smelt.explain(f)(x)
    assert 'disabled' in {at.reason for at in report.breaks} and 'inside' in str(report)


def test_disable_leaves_what_it_marks_usable():
    scaler, linear, x = Scaler(1), torch.nn.Linear(4, 4), torch.randn(4)
    for fn in (scaler.apply, torch.sin, linear, functools.partial(scaled, scale=3.0)):
        torch.testing.assert_close(smelt.disable(fn)(x), fn(x))
    module = smelt.disable(linear)
    assert isinstance(module, torch.nn.Linear) and module.weight is linear.weight
    assert isinstance(copy.deepcopy(module), torch.nn.Linear)
    torch.testing.assert_close(pickle.loads(pickle.dumps(module))(x), linear(x))

    class Holder:
        @smelt.disable
        def method(self, x):
            return x + 1

        @smelt.disable
        @staticmethod
        def static(x):
            return x + 2

    assert Holder().method(1) == 2 and Holder.static(1) == 3
    with pytest.raises(smelt.Error):
        smelt.disable(3)


def test_what_is_disabled_is_not_compiled():
    @smelt.disable
    def f(x):
        return x + 1

    linear = smelt.disable(torch.nn.Linear(2, 2))
    assert smelt.compile(f) is f and smelt.compile(linear) is linear and smelt.disable(linear) is linear
    assert 'smelt.disable' in str(smelt.explain(linear)(torch.ones(2)))


def test_disable_changes_no_other_use_of_a_function():
    def helper(x, *, by=2):
        return x * by

    untouched, x = smelt.disable(helper), torch.randn(3)
    assert untouched is not helper and untouched(x, by=3).equal(x * 3) and untouched(x).equal(x * 2)
    assert len(smelt.explain(lambda x: helper(x) + 1)(x).breaks) == 0
    assert len(smelt.explain(lambda x: untouched(x) + 1)(x).breaks) == 1


def test_is_compiling():
    assert smelt.is_compiling() is False


# -- explain, stats, reset


def test_explain_a_function_of_one_graph():
    report = smelt.explain(scaled)(torch.randn(4))
    assert report.graph_count == 1 and report.op_count == 3 and report.break_count == 0 and report.guard_count > 0
    assert report.breaks == [] and report.recompiles == [] and report.mode_note == ''
    segment = report.segments[0]
    assert segment.function.endswith('scaled') and segment.file == __file__ and segment.ops == 3
    assert any('x' in line for line in segment.guard_lines) and 'relu' in segment.graph and segment.ends == 'returns'
    text = str(report)
    assert text.startswith('scaled: 1 graph, 3 ops') and os.path.basename(__file__) in text
    assert json.loads(report.json())['op_count'] == 3


def test_explain_breaks():
    report = smelt.explain(breaking)(torch.ones(4))
    line = inspect.getsourcelines(breaking)[1] + 2
    assert report.graph_count == 2 and report.break_count == 1
    at = report.breaks[0]
    assert (at.file, at.line, at.function) == (__file__, line, 'breaking')
    assert at.sentence in str(report) and at.remedy in str(report) and f':{line}, in breaking' in str(report)
    assert json.loads(report.json())['breaks'][0]['line'] == line


def test_explain_recompiles():
    compiled = smelt.compile(scaled, dynamic=False)
    compiled(torch.ones(4))
    report = smelt.explain(compiled)(torch.ones(5, dtype=torch.float64))
    assert len(report.recompiles) == 1 and 'x' in report.recompiles[0]
    assert 'recompiles' in str(report)
    report = smelt.explain(compiled)(torch.ones(5, dtype=torch.float64))
    assert len(report.recompiles) == 1  # its state so far


def test_explain_says_why_ops_are_run_one_by_one():
    def every_other(x):
        x[::2].add_(1)
        return x.sum()
    report = smelt.explain(every_other)(torch.ones(10000, 8))
    assert report.segments[0].op_by_op == 'parts of tensors are changed in place'
    assert 'op by op: parts of tensors are changed in place' in str(report)
    assert smelt.explain(scaled)(torch.ones(4)).segments[0].op_by_op == ''


def test_explain_takes_what_compile_takes():
    scaler, x = Scaler(1), torch.randn(4)
    linear = torch.nn.Linear(4, 2)
    for fn in (scaler.apply, linear, smelt.compile(linear), functools.partial(scaled, scale=3.0), scaler, torch.sin,
               decorated):
        assert smelt.explain(fn)(x).graph_count >= 1
    with pytest.raises(smelt.Error):
        smelt.explain(scaled, mode='fast')
    with pytest.raises(smelt.Error):
        smelt.explain(decorated, mode='max-autotune')
    with pytest.raises(smelt.Error):
        smelt.explain(3)


def test_explain_says_what_a_mode_does_not_do():
    report = smelt.explain(scaled, mode='reduce-overhead')(torch.randn(3))
    assert report.mode == 'reduce-overhead' and report.mode_note in str(report)
    assert report.mode_note == "mode 'reduce-overhead' has nothing of its own on cpu yet: runs as default"


def test_stats_and_reset():
    compiled = smelt.compile(breaking)
    for x in (torch.ones(3), torch.ones(3), torch.ones(3)):
        compiled(x)
    stats = smelt.stats()
    assert stats['frames'] >= 3 and stats['segments'] == 2 and stats['graph_breaks'] == 1 and stats['recompiles'] == 0
    assert stats['cache_hits'] >= 4 and isinstance(stats['compile_seconds'], float)
    assert stats['graphs'] == 2 and stats['ops_native'] + stats['ops_fallback'] >= 2
    smelt.reset()
    assert not any(smelt.stats().values())
    assert compiled._segments() == []
    torch.testing.assert_close(compiled(torch.ones(3)), breaking(torch.ones(3)))
    assert smelt.stats()['segments'] >= 1


# -- coexistence


def test_threads_call_one_function_at_once():
    compiled = smelt.compile(breaking)
    inputs = [torch.randn(size) * sign for size in (3, 4) for sign in (1, -1)]
    expected = [breaking(x) for x in inputs]
    errors, start = [], threading.Barrier(24)

    def work(seed):
        try:
            start.wait(30)
            for i in range(50):
                k = (seed + i) % len(inputs)
                torch.testing.assert_close(compiled(inputs[k]), expected[k], rtol=0, atol=0)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), 'a thread hangs'
    if errors:
        raise errors[0]


def test_under_a_tracer_and_a_profiler():
    import cProfile
    lines = []

    def tracer(frame, event, arg):
        if frame.f_code is breaking.__code__ and event == 'line':
            lines.append(frame.f_lineno)
        return tracer

    compiled, x = smelt.compile(breaking), torch.ones(3)
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        result = compiled(x)
    finally:
        sys.settrace(before)
    torch.testing.assert_close(result, breaking(x))
    first = inspect.getsourcelines(breaking)[1]
    assert lines == [first + 1, first + 2, first + 3]
    profile = cProfile.Profile()
    torch.testing.assert_close(profile.runcall(compiled, x), breaking(x))
    torch.testing.assert_close(twice(compiled, x), breaking(x))


@pytest.mark.filterwarnings('ignore:.*fork.*')
def test_after_a_fork():
    compiled, x = smelt.compile(scaled), torch.ones(3)
    compiled(x)
    child = os.fork()
    if child == 0:
        ok = False
        try:
            ok = torch.equal(compiled(x), scaled(x)) and torch.equal(compiled(torch.ones(2)), scaled(torch.ones(2)))
        finally:
            os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_beside_torch_compile():
    dynamo = pytest.importorskip('torch._dynamo')
    ours, x = smelt.compile(scaled), torch.randn(4)
    ours(x)
    theirs = torch.compile(scaled, backend='eager')
    same(theirs, scaled, x)
    same(ours, scaled, x)
    same(torch.compile(lambda x: ours(x) + 1, backend='eager'), lambda x: scaled(x) + 1, x)
    same(smelt.compile(lambda x: theirs(x) + 1), lambda x: scaled(x) + 1, x)
    dynamo.reset()
    same(ours, scaled, x)


def test_a_compiled_function_is_freed_with_what_it_holds():
    class Held:
        pass

    def make():
        held = Held()
        held.weight = torch.ones(3)

        def f(x):
            return x * held.weight
        held.self_reference = smelt.compile(f)  # a cycle through the compiled function
        held.self_reference(torch.ones(3))
        held.self_reference(torch.ones(3))
        return weakref.ref(held), weakref.ref(held.self_reference), weakref.ref(held.weight)

    references = make()
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_exceptions_pass_through():
    def f(x):
        y = x + 1
        raise KeyError(y.shape[0])

    compiled = smelt.compile(f)
    for _ in range(3):
        with pytest.raises(KeyError, match='3') as raised:
            compiled(torch.ones(3))
    frames = [entry.name for entry in raised.traceback]
    assert frames[-1] == 'f'


def test_shutdown_with_compiled_functions_alive():
    program = textwrap.dedent('''
        import torch, smelt
        class Late:
            def __del__(self):
                print('late')
        late = Late()
        @smelt.compile
        def f(x, late=late):
            print('once')
            return x + 1
        f(torch.ones(2)); f(torch.ones(2))
    ''')
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ['once', 'once', 'late'] and not done.stderr


def test_python_of_another_version(monkeypatch):
    monkeypatch.setattr(smelt._native, 'follows_this_python', lambda: False)
    with pytest.warns(RuntimeWarning, match='follows Python 3.11 and 3.12; this is .*where everything runs as it is'):
        compiled = smelt.compile(torch.relu)
    assert 'nothing was compiled: smelt.compile follows' in str(smelt.explain(compiled)(torch.ones(2)))
    with pytest.raises(smelt.OptionError, match='fullgraph=True: smelt.compile follows'):
        smelt.compile(torch.relu, fullgraph=True)
