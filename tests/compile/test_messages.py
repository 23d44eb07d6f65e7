"""What smelt says: sentences that are true where they are said, with the user's own line and one thing to do."""
import copy
import datetime
import inspect
import io
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import threading
import types
import warnings
import zlib

import pytest
import torch
from test_breaks import PROGRAMS, ROWS, X, report_of
from torch import nn

import smelt
from smelt import _compile

HERE = pathlib.Path(__file__).name


# -- rows of breaks.def


@pytest.mark.parametrize('name', ROWS)
def test_a_row_reads_as_a_sentence(name):
    sentence, remedy = ROWS[name]
    for text in (sentence, remedy):
        assert text and not text.endswith('.') and not text.startswith(' ') and '  ' not in text
        assert text[0] in '{CP' or text[0].islower()
    assert sentence.count('{}') <= 1 and '{' not in remedy


@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')
@pytest.mark.parametrize('fn, reason, at, calls', PROGRAMS)
def test_a_break_is_said_in_full(fn, reason, at, calls, capsys):
    """The text of a break: the user's line, the sentence, the remedy with a capital letter."""
    for one in report_of(fn, calls).breaks:
        assert re.fullmatch(r'\S+\.py:\d+, in [\w.]+(, in .+)?(, called at \S+:\d+)?: .+\. [A-Z].+\.', one.text), one.text
        assert '{}' not in one.text and not re.search(r'[ (]\)|\( |, ,|,,', one.text), one.text
        assert 'site-packages/torch/' not in one.text


def python_functions():
    import linecache
    import shutil
    import tempfile
    import traceback
    yield 'tempfile.gettempdir', lambda x: len(tempfile.gettempdir()) + x
    yield 'linecache.getline', lambda x: len(linecache.getline(__file__, 1)) + x
    yield 'threading.current_thread', lambda x: (threading.current_thread(), x + 1)[1]
    yield 'traceback.format_stack', lambda x: (traceback.format_stack(), x + 1)[1]
    yield 'inspect.getsource', lambda x: (inspect.getsource(python_functions), x + 1)[1]
    yield 'shutil.which', lambda x: (shutil.which('ls'), x + 1)[1]


@pytest.mark.parametrize('name, fn', [pytest.param(*case, id=case[0]) for case in python_functions()])
def test_a_python_function_is_not_said_to_be_c_code(name, fn):
    texts = [at.sentence for at in smelt.explain(fn)(torch.ones(2)).breaks]
    assert f'a call of {name}, a Python function that smelt does not follow' in texts
    assert not any(name in text and 'C code' in text for text in texts)


def test_functions_have_their_full_names():
    day, file = datetime.date(2026, 1, 1), io.StringIO('text')
    for fn, name in ((lambda x: (zlib.crc32(b'x'), x + 1)[1], 'zlib.crc32'),
                     (lambda x: (day.isoformat(), x + 1)[1], 'datetime.date.isoformat'),
                     (lambda x: (file.getvalue(), x + 1)[1], '_io.StringIO.getvalue')):
        sentences = [at.sentence for at in smelt.explain(fn)(torch.ones(2)).breaks]
        assert sentences == [f"a call of {name}, whose C code can't be seen into"]


# -- where


LIBRARY = '''
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            x = self.linear(x)
            print(end='')  # the break
            return torch.relu(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(), nn.Sequential(nn.Identity(), Block())])

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return x
'''


@pytest.fixture(scope='module')
def library(tmp_path_factory):
    """A library as pip installs it, with a break in the middle."""
    folder = tmp_path_factory.mktemp('env') / 'site-packages'
    folder.mkdir()
    (folder / 'smelt_test_library.py').write_text(textwrap.dedent(LIBRARY))
    sys.path.insert(0, str(folder))
    import smelt_test_library
    yield smelt_test_library
    sys.path.remove(str(folder))
    del sys.modules['smelt_test_library']


def line_here():
    return inspect.currentframe().f_back.f_lineno


def test_a_break_in_a_library_names_module_and_callers_line(library):
    explained = smelt.explain(library.Model())
    report, line = explained(torch.randn(2, 4)), line_here()
    found = report.breaks[0]
    assert found.file == library.__file__ and found.function == 'Block.forward'
    assert LIBRARY.splitlines()[found.line - 1].endswith('# the break')
    assert found.module == 'Block (blocks.0)' and 'in Block (blocks.0), called at' in found.text
    # smelt.explain makes the call: the user's line is the one that called it.
    assert found.called_at.endswith(f'{HERE}:{line}') and found.called_at in str(report)


def test_a_break_in_torchs_code_is_at_the_users_line():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
            self.body[1].register_forward_hook(lambda module, args, out: print(end=''))

        def forward(self, x):
            x = x + 1
            return self.body(x)  # here

    lines, first = inspect.getsourcelines(Net)
    here = next(first + i for i, line in enumerate(lines) if '# here' in line)
    report = smelt.explain(Net())(torch.randn(2, 3))
    hook = [at for at in report.breaks if at.reason == 'output']
    assert hook and all(at.file == __file__ and at.called_at == '' for at in report.breaks)
    assert any(at.line == here for at in report.breaks) or hook[0].function == '<lambda>'


def test_a_module_of_torchs_alone():
    """There is no frame of the user's in the trace: the break is where the model was called."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), nn.Identity()))
    model[1][0].register_forward_hook(print_nothing)
    compiled = smelt.compile(model)
    compiled(torch.randn(2, 3)); line = line_here()  # noqa: E702
    breaks = [row for row in compiled_of(compiled)._breaks() if row['reason'] == 'output']
    assert breaks[0]['module'] == 'ReLU (1.0)' and breaks[0]['file'] == __file__
    assert line == breaks[0]['line'] or breaks[0]['function'] == 'print_nothing'


def compiled_of(model):
    return _compile.native_of(model)


def print_nothing(*args):
    print(end='')


# -- what is said when the variants are used up


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4)) for _ in range(3)])

    def forward(self, hidden, mask=None):
        for block in self.blocks:
            hidden = block(hidden) + hidden
        return hidden


def caught(call, inputs):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter('always')
        for x in inputs:
            call(x)
    return found


@pytest.mark.parametrize('limit', [1, 3])
def test_the_limit_is_said_once_per_model(limit):
    model = smelt.compile(Net(), options={'recompile_limit': limit}, dynamic=False)
    found = caught(lambda x: model(x), (torch.randn(n, 4) for n in range(2, 30)))
    assert len(found) == 1
    text, line = str(found[0].message), inspect.getsourcelines(test_the_limit_is_said_once_per_model)[1] + 3
    assert found[0].filename == __file__ and found[0].lineno == line and found[0].category is RuntimeWarning
    assert text.startswith('smelt: Net') and f'{HERE}:{line}' in text
    assert 'hidden: size at dimension 0 is' in text and "options={'recompile_limit':" in text
    assert '_wrapped_call_impl' not in text and '_call_impl' not in text and 'module.py' not in text


def test_another_model_says_it_too():
    found = []
    for _ in range(2):
        model = smelt.compile(Net(), options={'recompile_limit': 1}, dynamic=False)
        found += caught(model, (torch.randn(n, 4) for n in range(2, 12)))
    assert len(found) == 2


def test_a_function_is_named_with_file_and_line():
    def scaled(x):
        return x * x.shape[0]

    compiled = smelt.compile(scaled, options={'recompile_limit': 1}, dynamic=False)
    found = caught(compiled, (torch.ones(n) for n in range(2, 9)))
    line = inspect.getsourcelines(scaled)[1]
    assert re.match(rf'smelt: \S*scaled at \S*{HERE}:{line}', str(found[0].message)) and len(found) == 1


def test_a_warning_that_is_an_error_is_raised_and_said_once():
    compiled = smelt.compile(lambda x: x * x.shape[0], options={'recompile_limit': 1}, dynamic=False)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        compiled(torch.ones(2))
        with pytest.raises(RuntimeWarning, match='was compiled 1 times'):
            compiled(torch.ones(3))
        assert compiled(torch.ones(4)).tolist() == [4] * 4


# -- why something was compiled again


def changed_keys(before, after):
    def f(x, given):
        return x * sum(len(key) for key in given)
    return f, before, after


CHANGES = [
    ('given: has a new key \'b\'', *changed_keys({'a': 1}, {'a': 1, 'b': 2})),
    ('given: has no key \'a\' any more', *changed_keys({'a': 1, 'b': 2}, {'b': 2})),
    ('given: has its keys in another order', *changed_keys({'a': 1, 'b': 2}, {'b': 2, 'a': 1})),
    ("given: was 'a', is 'b'", lambda x, given: x + {'a': 1, 'b': 2}[given], 'a', 'b'),
    ('given: was length 2, is length 3', lambda x, given: x + len(given), [1, 2], [1, 2, 3]),
]


@pytest.mark.parametrize('expected, fn, before, after', CHANGES)
def test_a_failed_guard_is_a_sentence(expected, fn, before, after):
    compiled = smelt.compile(fn)
    compiled(torch.ones(2), before)
    compiled(torch.ones(2), after)
    assert any(text.endswith(expected) for text in compiled._recompiles()), compiled._recompiles()


def test_an_object_is_told_by_what_it_was():
    config = types.SimpleNamespace(problem=None)
    compiled = smelt.compile(lambda x: x * 2 if config.problem is None else x * 3)
    compiled(torch.ones(2))
    config.problem = 'regression'
    compiled(torch.ones(2))
    [text] = compiled._recompiles()
    assert text.endswith("config.problem: was None, is 'regression'")


class Broken(nn.Module):
    """Modules of many classes around a break."""

    def __init__(self, depth):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), Broken(depth - 1) if depth else Printing(), nn.Tanh())

    def forward(self, x):
        return self.inner(x) * 2


class Printing(nn.Module):
    def forward(self, x):
        y = x * 2
        print(end='')
        return y + 1


def test_another_class_is_no_reason_to_compile_again():
    """The code that calls modules serves all of them."""
    model = Broken(2)
    compiled = smelt.compile(model, options={'rollback': False})
    for _ in range(8):
        torch.testing.assert_close(compiled(torch.ones(2, 4)), model(torch.ones(2, 4)))
    reasons = smelt.explain(compiled)(torch.ones(2, 4)).recompiles
    assert not [text for text in reasons if ': self: was a ' in text], reasons


def test_what_has_no_name_is_said_to_have_none():
    def function(x):
        return torch.stack([x * 2, print(end='') or x.sum(0) + x])

    compiled = smelt.compile(function, options={'rollback': False})
    for size in (2, 3, 4):
        compiled(torch.ones(size, size))
    assert compiled._recompiles() and not any('<stack' in text for text in compiled._recompiles())


def test_no_reason_says_that_a_thing_was_what_it_is():
    """Over many kinds of changes: "was X, is X" tells nothing."""
    def twice(kind):
        return [lambda x: x * 2, lambda x: x * 3] if kind == 'function' else [
            type('Same', (), {'n': n, '__call__': lambda self, x: x * self.n})() for n in (2, 3)]

    def f(x, given):
        return given(x)

    for before, after in (twice('function'), twice('object'), (torch.sin, torch.cos), (nn.ReLU(), nn.GELU())):
        compiled = smelt.compile(f)
        compiled(torch.ones(2), before), compiled(torch.ones(2), after)
        for text in compiled._recompiles():
            for was, now in re.findall(r'was (.+), is (.+)$', text):
                assert was != now, text


def test_the_log_says_the_same(tmp_path):
    program = textwrap.dedent('''
        import torch, smelt
        from torch import nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)
            def forward(self, hidden):
                hidden = self.linear(hidden)
                print(end='')
                return hidden
        model = smelt.compile(Net())
        for n in range(2, 5):
            model(torch.ones(n, 4))
    ''')
    file = tmp_path / 'program.py'
    file.write_text(program)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, cwd=tmp_path,
                          env={**os.environ, 'SMELT_LOG': 'breaks,recompiles',
                               'PYTHONPATH': str(pathlib.Path(smelt.__file__).parents[1])})
    assert done.returncode == 0, done.stderr
    assert 'program.py:10, in Net.forward: input or output (print). Move it out' in done.stderr
    assert re.search(r'Net( at program.py:\d+|, called at program.py:14): hidden: size at dimension 0 is', done.stderr)
    assert '_wrapped_call_impl' not in done.stderr


# -- wishes that are not granted


@pytest.mark.parametrize('keywords, words', [({'mode': 'lite' if torch.cuda.is_available() else 'max-autotune'}, "runs as 'default'")])
def test_a_wish_without_effect_is_said_once(monkeypatch, keywords, words):
    monkeypatch.setattr(_compile, '_said', set())
    with pytest.warns(RuntimeWarning, match=words) as found:
        for _ in range(3):
            smelt.compile(lambda x: x + 1, **keywords)
    assert len(found) == 1 and found[0].filename == __file__


@pytest.mark.parametrize('keywords', [{}, {'dynamic': False}, {'dynamic': True}, {'mode': 'default'}, {'mode': None}, {'disable': True, 'dynamic': True}])
def test_nothing_is_said_without_a_wish(monkeypatch, keywords):
    monkeypatch.setattr(_compile, '_said', set())
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        smelt.compile(lambda x: x + 1, **keywords)


# -- smelt.is_compiling


def asks(x):
    return smelt.is_compiling(), x + 1


@smelt.disable
def asks_disabled(x):
    return smelt.is_compiling(), x + 1


def asks_behind_a_break(x):
    first = smelt.is_compiling()
    y = x + 1
    print(end='')
    return first, smelt.is_compiling(), y


def asks_in_a_callee_with_a_break(x):
    return asks_behind_a_break(x * 2), smelt.is_compiling()


def asks_from_c_code(x):
    return list(map(lambda y: (smelt.is_compiling(), y.sum().tolist()), [x]))


def asks_in_a_callback(x):
    return sorted([3, 1, 2], key=lambda n: n if smelt.is_compiling() else -n), x + 1


def answers(value):
    if isinstance(value, (list, tuple)):
        return [answer for one in value for answer in answers(one)]
    return [value] if isinstance(value, bool) else []


@pytest.mark.parametrize('fn', [asks, asks_behind_a_break, asks_in_a_callee_with_a_break, asks_from_c_code])
def test_is_compiling_is_true_in_every_call(fn):
    compiled = smelt.compile(fn)
    for size in (2, 2, 2, 3, 3, 4, 5):
        found = answers(compiled(torch.ones(size)))
        assert found and all(found), (size, found)
    assert not any(answers(fn(torch.ones(2)))) and smelt.is_compiling() is False
    assert torch.compiler.is_compiling() is False


def test_is_compiling_past_the_limit_and_in_a_callback():
    compiled = smelt.compile(lambda x: (smelt.is_compiling(), x * x.shape[0]), options={'recompile_limit': 1})
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        assert all(compiled(torch.ones(n))[0] for n in range(2, 9))
    compiled = smelt.compile(asks_in_a_callback)
    assert all(compiled(torch.ones(2))[0] == [1, 2, 3] for _ in range(3))


def test_is_compiling_is_false_in_what_is_disabled():
    compiled = smelt.compile(lambda x: (asks_disabled(x)[0], smelt.is_compiling(), asks_disabled(x * 2)[0]))
    assert [compiled(torch.ones(2)) for _ in range(4)] == [(False, True, False)] * 4


def test_is_compiling_costs_no_break():
    model = nn.Linear(3, 3)

    def f(x):
        return model(x) if smelt.is_compiling() else x

    report = smelt.explain(f)(torch.ones(2, 3))
    assert report.break_count == 0 and report.graph_count == 1 and report.op_count >= 1


def test_is_compiling_on_other_threads():
    compiled, found = smelt.compile(asks_behind_a_break), []
    compiled(torch.ones(2))
    thread = threading.Thread(target=lambda: found.extend([smelt.is_compiling(), answers(compiled(torch.ones(2)))]))
    thread.start()
    thread.join()
    assert found == [False, [True, True]]


def test_copies_of_models_say_it_once_each():
    models = [smelt.compile(Net(), options={'recompile_limit': 1}, dynamic=False)]
    models.append(copy.deepcopy(models[0]))
    found = [caught(model, (torch.randn(n, 4) for n in range(2, 9))) for model in models]
    assert [len(one) for one in found] == [1, 1]


def recompiles_of(function, *calls):
    compiled = smelt.compile(function)
    for call in calls:
        call(compiled)
    return smelt.explain(compiled)(torch.ones(4)).recompiles


def test_a_recompile_for_what_pytorch_is_switched_to():
    def function(x):
        return x * 2 + 1

    def without_gradients(compiled):
        with torch.no_grad():
            compiled(torch.ones(4))
    found = recompiles_of(function, lambda compiled: compiled(torch.ones(4)), without_gradients)
    assert len(found) == 1 and 'grad mode was on, is off' in found[0], found


def test_a_recompile_for_a_variable_that_has_a_value_now():
    def function(x):
        for number in range(4):
            x = x + 1
            with open(os.devnull) as file:
                file.read()
        return x
    found = recompiles_of(function, lambda compiled: compiled(torch.ones(4)))
    assert any('file: had no value, has one' in reason for reason in found), found
    assert not any('read from a tensor' in reason for reason in found), found
