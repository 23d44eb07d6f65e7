"""What smelt borrows of CPython's and PyTorch's internals is tried out at import (docs/design/borrowed_internals.md)."""
import pathlib
import re
import subprocess
import sys
import time

import pytest

from smelt import _native

PACKAGE = pathlib.Path(_native.__file__).parents[1]
PAGE = pathlib.Path(__file__).parents[2] / 'docs/design/borrowed_internals.md'

PROGRAM = '''
import warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter('always')
    import smelt
    import torch

    @smelt.compile
    def double(x):
        return x * 2 + 1

    x = torch.ones(3)
    assert torch.equal(double(x), torch.full((3,), 3.0))
    model = smelt.compile(torch.nn.Linear(3, 2))
    assert model(x).shape == (2,)
    try:
        smelt.record(lambda x: x + 1, x)
        print('recorded')
    except smelt.RecordError as error:
        print('not recorded:', error)
print(smelt.stats()['frames'], smelt.stats()['segments'])
for one in seen:
    if 'smelt' in str(one.message):
        print('warning:', one.category.__name__, one.message)
'''


def run(broken=''):
    import os
    environment = os.environ | {'SMELT_BREAK_SELF_TEST': broken, 'PYTHONPATH': str(PACKAGE)}
    done = subprocess.run([sys.executable, '-c', PROGRAM], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_all_is_as_known():
    assert _native.self_test() == []
    lines = run()
    assert lines[0] == 'recorded'
    assert lines[1] != '0 0'
    assert not [line for line in lines if line.startswith('warning:')]


@pytest.mark.parametrize('kind', _native.self_test_kinds())
def test_a_mismatch_is_one_warning_and_eager_execution(kind):
    lines = run(kind)
    assert lines[0].startswith('not recorded:')
    assert lines[1] == '0 0'
    said = [line for line in lines if line.startswith('warning:')]
    assert len(said) == 1 and 'RuntimeWarning' in said[0] and 'is not as smelt knows it' in said[0]
    assert 'functions run as they are' in said[0]


@pytest.mark.parametrize('kind', _native.self_test_kinds())
def test_the_page_names_each_kind(kind):
    assert f'`{kind}`' in PAGE.read_text()


def test_files_on_the_page_are_there():
    named = set(re.findall(r'`((?:src|python)/[\w/.]+\.\w+)`', PAGE.read_text()))
    root = PAGE.parents[2]
    assert len(named) > 10
    assert not [name for name in named if not (root / name).exists()]


def test_it_costs_little():
    times = []
    for _ in range(20):
        start = time.perf_counter()
        _native.self_test()
        times.append(time.perf_counter() - start)
    assert min(times) < 1e-3
