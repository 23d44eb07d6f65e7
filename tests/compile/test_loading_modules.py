"""Imports inside compiled code: what they load stays loaded, and a later call finds it."""
import sys

import pytest
import torch

import smelt

X = torch.arange(3.0)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that nobody has imported yet, and gives its name."""
    name = f'loaded_by_{tmp_path.name}'
    (tmp_path / f'{name}.py').write_text('import sys\nsys.loads = getattr(sys, "loads", 0) + 1\nscale = 3.0\n')
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)
    sys.__dict__.pop('loads', None)


def importer(name):
    namespace = {}
    exec(f'def scaled(x):\n    x = x + 1\n    from {name} import scale\n    import {name} as it\n'
         f'    return x * scale * it.scale\n', namespace)
    return namespace['scaled']


def test_one_graph(module):
    compiled = smelt.compile(importer(module), fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), (X + 1) * 9)
    assert sys.loads == 1
    assert smelt.stats()['graphs'] == 1 and smelt.stats()['recompiles'] == 0


def test_loaded_again(module):
    compiled = smelt.compile(importer(module))
    for loads in (1, 2):
        for _ in range(2):
            torch.testing.assert_close(compiled(X), (X + 1) * 9)
        assert sys.loads == loads
        del sys.modules[module]


def test_what_it_holds_changes(module):
    compiled = smelt.compile(importer(module))
    compiled(X), compiled(X)
    sys.modules[module].scale = 5.0
    for _ in range(2):
        torch.testing.assert_close(compiled(X), (X + 1) * 25)


def test_one_that_fails():
    def fails(x):
        x = x + 1
        try:
            import no_such_module_anywhere
        except ImportError as error:
            return x, str(error)

    compiled = smelt.compile(fails)
    for _ in range(3):
        result, text = compiled(X)
        assert torch.equal(result, X + 1) and 'no_such_module_anywhere' in text


def test_one_that_changes_what_was_read(module, tmp_path):
    (tmp_path / f'{module}.py').write_text('import builtins\nbuiltins.smelt_test_state[0] = 2.0\nscale = 3.0\n')
    import builtins
    builtins.smelt_test_state = [1.0]
    namespace = {'state': builtins.smelt_test_state}
    exec(f'def f(x):\n    before = state[0]\n    import {module}\n    return x * before, x * state[0]\n', namespace)
    compiled = smelt.compile(namespace['f'])
    try:
        assert [float(r[1]) for r in compiled(X)] == [1.0, 2.0]
        for _ in range(2):
            assert [float(r[1]) for r in compiled(X)] == [2.0, 2.0]
    finally:
        del builtins.smelt_test_state
