"""import smelt beside another torch, or in another Python, says what it was built for, what is here and what to do,
before its library is loaded."""
import importlib.machinery
import pathlib
import subprocess
import sys
import textwrap

import pytest

import smelt
from smelt import _built_for

PACKAGE = pathlib.Path(smelt.__file__).parent


def import_in(folder, **changed):
    """What `import smelt` says in a process that finds `folder` first, and in which _built_for has changed."""
    changes = ''.join(f'sys.modules["smelt._built_for"].{name} = {value!r}\n' for name, value in changed.items())
    program = textwrap.dedent('''
        import importlib.util, sys, types
        sys.path[:0] = [{folder!r}, {parent!r}]
        spec = importlib.util.spec_from_file_location('smelt._built_for', {built_for!r})
        built_for = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(built_for)
        sys.modules['smelt._built_for'] = built_for
        {changes}
        import smelt
        print('imported')
    ''').format(folder=str(folder), parent=str(PACKAGE.parent), built_for=str(PACKAGE / '_built_for.py'),
                changes=changes.replace('\n', '; '))
    return subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)


def fake_torch(folder, version):
    (folder / 'torch').mkdir()
    (folder / 'torch' / '__init__.py').write_text(f'__version__ = {version!r}\n')


def test_the_file_says_what_this_is():
    import torch
    assert _built_for.TORCH.split('+')[0] == torch.__version__.split('+')[0]
    assert _built_for.PYTHON == f'{sys.version_info.major}.{sys.version_info.minor}'
    assert _built_for.EXTENSION_SUFFIX in importlib.machinery.EXTENSION_SUFFIXES


@pytest.mark.parametrize('version', ['2.12.1', '2.13.0.dev20260301+cpu', '3.0.0+cu130', '1.13.1'])
def test_another_torch(tmp_path, version):
    fake_torch(tmp_path, version)
    done = import_in(tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and last.startswith('ImportError: smelt was built for PyTorch')
    assert _built_for.TORCH in last and f'this is {version};' in last and 'pip install --force-reinstall' in last
    assert 'undefined symbol' not in done.stderr


@pytest.mark.parametrize('local', ['', '+cpu', '+cu130'])
def test_the_same_version_built_otherwise_is_fine(tmp_path, local):
    """Only the sentence is tested: the fake torch has no library, and that is what the import fails for."""
    fake_torch(tmp_path, _built_for.TORCH + local)
    assert 'smelt was built for' not in import_in(tmp_path).stderr


def test_another_python(tmp_path):
    done = import_in(tmp_path, EXTENSION_SUFFIX='.cpython-399-x86_64-linux-gnu.so', PYTHON='3.99')
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith('ImportError: smelt was built for Python 3.99') and 'pip install --force-reinstall' in last
    assert f'this is Python {sys.version_info.major}.{sys.version_info.minor}' in last


def test_no_torch(tmp_path):
    (tmp_path / 'torch.py').write_text('raise ModuleNotFoundError("No module named \'torch\'", name="torch")\n')
    last = import_in(tmp_path).stderr.strip().splitlines()[-1]
    assert last.startswith('ImportError: smelt needs PyTorch') and 'pip install torch==' in last


def test_a_torch_that_is_broken_says_so_itself(tmp_path):
    (tmp_path / 'torch.py').write_text('import a_library_that_torch_needs\n')
    assert 'a_library_that_torch_needs' in import_in(tmp_path).stderr.strip().splitlines()[-1]
