"""smelt runs out of memory at any point of a trace, of a compilation, of a cached call: the program gives what eager
gives, or an error that says so where the program can't be gone on with, and the process is as it was."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
needs_compiler = pytest.mark.skipif(shutil.which('g++') is None, reason='there is no compiler for the allocator that fails')


@pytest.fixture(scope='module')
def allocator(tmp_path_factory):
    library = tmp_path_factory.mktemp('faults') / 'libfaults.so'
    subprocess.run(['g++', '-O1', '-fPIC', '-shared', '-o', library, HERE / 'fault_allocator.cpp'], check=True)
    return library


def sweep(allocator, backend, most):
    preload = f'{allocator} {os.environ.get("LD_PRELOAD", "")}'.strip()
    done = subprocess.run(
        [sys.executable, HERE / 'faults_check.py', backend, str(most)],
        env=dict(os.environ, LD_PRELOAD=preload),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    wrong = [f'{lines[i - 1]}: {line}' for i, line in enumerate(lines) if line.startswith('WRONG')]
    assert done.returncode == 0, (wrong or lines[-1:], done.stderr[-3000:])


@needs_compiler
def test_some_faults(allocator):
    sweep(allocator, 'eager', 4)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize('backend', ['eager', 'native', 'background'])
def test_many_faults(allocator, backend):
    sweep(allocator, backend, 40)
