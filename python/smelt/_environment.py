"""Whether this is the Python and the PyTorch that smelt was built for: asked before its library is loaded, which would
fail with the name of a missing symbol."""
import importlib.machinery
import os
import sys

from . import _built_for

AGAIN = 'pip install --force-reinstall --no-deps --no-binary smelt smelt (in a source tree: ./dev)'


def check():
    """Raises an ImportError that says what smelt was built for, what is here, and what to do. Of a command line that sentence is
    all there is, with exit code 2."""
    try:
        problem = _problem()
    except KeyboardInterrupt:  # PyTorch takes seconds to load
        if not _is_command():
            raise
        sys.stderr.write('smelt: interrupted\n')
        raise SystemExit(130) from None
    if not problem:
        return
    if _is_command() and '--debug' not in sys.argv:
        sys.stderr.write(f'smelt: {problem}\n')
        raise SystemExit(2)
    raise ImportError(problem)


def _problem():
    if _built_for.EXTENSION_SUFFIX not in importlib.machinery.EXTENSION_SUFFIXES:
        return (f'smelt was built for Python {_built_for.PYTHON} ({_built_for.EXTENSION_SUFFIX}) and this is '
                f'Python {_version(sys.version_info)} ({importlib.machinery.EXTENSION_SUFFIXES[0]}); '
                f'build it for this one: {AGAIN}')
    try:
        import torch
    except ModuleNotFoundError as missing:
        if missing.name != 'torch':
            raise
        return (f'smelt needs PyTorch {_built_for.TORCH}, and this Python has none; install it: '
                f'pip install torch=={_built_for.TORCH}')
    if torch.__version__.split('+')[0] != _built_for.TORCH.split('+')[0]:
        return (f'smelt was built for PyTorch {_built_for.TORCH} and this is {torch.__version__}; build it '
                f'for this one: {AGAIN}')
    return ''


def _is_command():
    """`smelt ...` or `python -m smelt ...`."""
    called, given = sys.argv[:1], sys.orig_argv
    return called == ['-m'] and given[given.index('-m') + 1:][:1] == ['smelt'] or (
        [os.path.basename(name) for name in called] == ['smelt'])


def _version(numbers):
    return f'{numbers[0]}.{numbers[1]}'
