"""The C++ example: built against the package as a user would, and run without Python."""
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import smelt

EXAMPLE = Path(__file__).resolve().parents[2] / 'examples' / 'cpp'


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f'{command}\n{done.stdout}\n{done.stderr}'
    return done.stdout


@pytest.fixture(scope='module')
def program(tmp_path_factory):
    build = tmp_path_factory.mktemp('example')
    options = [f'-DCMAKE_PREFIX_PATH={smelt.cmake_prefix_path}', '-DCMAKE_BUILD_TYPE=Debug']
    if shutil.which('ninja'):
        options += ['-G', 'Ninja']
    if shutil.which('ccache'):
        options.append('-DCMAKE_CXX_COMPILER_LAUNCHER=ccache')
    run('cmake', '-S', EXAMPLE, '-B', build, *options)
    run('cmake', '--build', build)
    return build / 'train'


@pytest.mark.slow
def test_equals_eager(program):
    output = run(program)
    assert output.count('equal bit for bit') == 5
    assert 'DIFFERENT' not in output
    assert 'f32[s0, 1, 8, 8]' in output  # what a wrong shape is told


@pytest.mark.slow
def test_has_no_python(program):
    assert not re.findall(r'.*libpython.*|.*torch_python.*', run('ldd', program))
