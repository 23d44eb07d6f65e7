"""A program's own modules may have the names of libraries. What is known of a library is known of its code, not of its name."""
import importlib.util
import sys
import textwrap

import pytest
import torch

import smelt

NAMES = ['random', 'copy', 'numpy', 'enum', 'inspect', 'logging', 'contextlib', 'importlib', 'typing', 'weakref', 'warnings',
         'threading', 'torch', 'torch.nn.modules.mine', 'torch._dynamo.decorators', 'torch._functorch.mine', 'torch._compile',
         'torch.utils.checkpoint', 'torch.autograd', 'smelt._compile']

CODE = '''
import torch

log = []
scale = 2.0


def deepcopy(x):
    log.append('deepcopy')
    return x * scale


copy = checkpoint = signature = graph_break = is_compiling = deepcopy


class Key:
    def __init__(self, value):
        self.value = value

    def __lt__(self, other):
        log.append('lt')
        return self.value * scale < other.value

    def __index__(self):
        log.append('index')
        return int(scale)

    def __hash__(self):
        log.append('hash')
        return 1

    def __eq__(self, other):
        log.append('eq')
        return True


def sorts(x):
    first = sorted([Key(2), Key(1)])[0]
    return x + first.value


def indexes(x):
    return x * [10, 20, 30, 40][Key(1)]


def looks_up(x):
    return x * {Key(1): 5}[Key(2)]
'''


@pytest.fixture(params=NAMES)
def module(request, tmp_path):
    file = tmp_path / 'module.py'
    file.write_text(textwrap.dedent(CODE))
    spec = importlib.util.spec_from_file_location(request.param, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare(module, function, x):
    """Three calls, and what is read is another thing in the third."""
    compiled = smelt.compile(lambda x: function(x) + 1)
    for scale in (2.0, 2.0, 3.0):
        module.scale = scale
        seen = []
        for call in (lambda x: function(x) + 1, compiled):
            del module.log[:]
            seen.append((call(x), list(module.log)))
        (expected, logged), (found, found_logged) = seen
        torch.testing.assert_close(found, expected)
        assert found_logged == logged


@pytest.mark.parametrize('name', ['deepcopy', 'copy', 'checkpoint', 'signature', 'graph_break', 'is_compiling'])
def test_functions_are_followed(module, name):
    function = getattr(module, name)
    compare(module, function, torch.arange(3.0))
    smelt.reset()
    report = smelt.explain(lambda x: function(x) + 1)(torch.arange(3.0))
    assert not report.breaks, report


@pytest.mark.parametrize('name', ['sorts', 'indexes', 'looks_up'])
def test_code_that_c_calls_is_seen(module, name):
    compare(module, getattr(module, name), torch.arange(3.0))


def test_libraries_are_known_still():
    """The same functions of the libraries themselves."""
    import copy
    import random

    def function(x):
        options = copy.deepcopy({'scale': [2.0]})
        return x * options['scale'][0] + random.Random(1).random()

    x = torch.arange(3.0)
    compiled = smelt.compile(function)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), function(x))
    assert 'random' in sys.modules and not smelt.explain(function)(x).breaks


def test_a_mode_called_as_one_of_torchs():
    """The user's function mode has the name of the one behind torch.set_default_device."""
    from torch.overrides import TorchFunctionMode
    calls = []

    class DeviceContext(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            calls.append(function)
            return function(*args, **(kwargs or {}))

    @smelt.compile
    def twice(x):
        return torch.add(x, x)

    x = torch.arange(3.0)
    for number in range(1, 4):
        with DeviceContext():
            result = twice(x)
        assert torch.equal(result, 2 * x)
        assert calls.count(torch.add) == number


WEIGHTS = '''
import torch

log = []


class Weight(torch.nn.Parameter):
    def __add__(self, other):
        log.append('add')
        return torch.Tensor.mul(self, other)

    def __bool__(self):
        log.append('bool')
        return False


def adds(w, x):
    return w + x


def asks(w, x):
    return x * 2 if w else x * 3
'''


@pytest.mark.parametrize('function', ['adds', 'asks'])
@pytest.mark.parametrize('name', ['torch_extras', 'torch.extras'])
def test_methods_of_a_parameter_class(tmp_path, name, function):
    """Its module's name begins as PyTorch's do; its methods are the program's own."""
    file = tmp_path / 'module.py'
    file.write_text(WEIGHTS)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    eager = getattr(module, function)
    compiled = smelt.compile(eager)
    weight, x = module.Weight(torch.full((1,), 3.0)), torch.ones(2)
    for _ in range(3):
        expected = eager(weight, x)
        logged = list(module.log)
        del module.log[:]
        torch.testing.assert_close(compiled(weight, x), expected)
        assert module.log == logged
        del module.log[:]


class EnumMeta(type):
    """Not Python's."""

    def __call__(cls, key):
        cls.calls += 1
        return cls.table[key] + cls.calls


class Colour(metaclass=EnumMeta):
    calls = 0
    table = {1: 10, 2: 20}


def test_a_metaclass_named_as_that_of_enumerations():
    def paint(x):
        return x * Colour(1)
    compiled, x = smelt.compile(paint), torch.ones(2)
    Colour.calls = 0
    assert [compiled(x)[0].item() for _ in range(4)] == [11, 12, 13, 14] and Colour.calls == 4
