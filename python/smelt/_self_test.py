"""Whether CPython and PyTorch are inside as smelt knows them: asked once, by `import smelt`.

docs/design/borrowed_internals.md lists what is borrowed. Where something differs there is one warning, and functions run as
they are.
"""
import os
import warnings

from . import _native

# A sentence for each kind of internals that is not as it should be.
problems = []


def run():
    # The variable is for tests: one kind is taken for something else.
    problems[:] = _native.self_test(os.environ.get('SMELT_BREAK_SELF_TEST', ''))
    if problems:
        warnings.warn(f'smelt: {describe()}; functions run as they are. Please report it with the versions of Python '
                      'and PyTorch.', RuntimeWarning, stacklevel=3)


def describe():
    """What differs; '' if nothing does."""
    return f'this Python or PyTorch is not as smelt knows it: {", ".join(problems)}' if problems else ''
