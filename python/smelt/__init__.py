"""smelt: a native compiler for PyTorch programs.

    import smelt

    graph = smelt.record(fn, *args)   # every tensor op of fn(*args), written down
    print(graph)                      # as text, one line per op
    graph.run(*args)                  # run it again, without Python
"""
from pathlib import Path

import torch

from . import _native
from ._errors import Error, InternalError, RecordError
from ._record import Graph, record

__version__ = _native.version
__all__ = ['Error', 'Graph', 'InternalError', 'RecordError', 'cmake_prefix_path', 'record', 'reset', 'set_log', 'stats']

# For C++ programs: cmake -DCMAKE_PREFIX_PATH="$(python -c 'import smelt; print(smelt.cmake_prefix_path)')".
cmake_prefix_path = str(Path(__file__).parent / 'share' / 'cmake')


def stats():
    """What smelt has done in this process, as a dict of counters.

    graphs, refusals, nodes (ops written down), runs, ops_native, ops_fallback, shapes_row / shapes_meta /
    shapes_probe (where result types came from), record_ns and compile_ns.
    """
    return _native.counters()


def reset():
    """Sets the counters of stats() to zero."""
    _native.reset_counters()


def set_log(categories):
    """Switches logging on, as the environment variable SMELT_LOG does: 'graph,passes', 'all' or ''."""
    _native.set_log(categories)


def _check_torch():
    built, here = _native.built_for_torch(), torch.__version__.split('+')[0]
    if built.split('+')[0] != here:
        raise ImportError(f'smelt was built for PyTorch {built} and this is {torch.__version__}; install smelt again '
                          'in this environment: pip install --force-reinstall --no-deps smelt')


_check_torch()
