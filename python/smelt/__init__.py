"""smelt: a native compiler for PyTorch programs.

    import smelt

    model = smelt.compile(model)      # or @smelt.compile on a function
    print(smelt.explain(fn)(*args))   # what was compiled, where graphs break and why

    graph = smelt.record(fn, *args)   # every tensor op of fn(*args), written down
    print(graph)                      # as text, one line per op
    graph.run(*args)                  # run it again, without Python
"""
from pathlib import Path

import torch

from . import _native
from ._compile import compile, disable, forget_all, is_compiling
from ._errors import ArgumentError, BreakError, Error, InternalError, OptionError, RecordError
from ._explain import Report, explain
from ._record import Graph, record
from ._settings import list_backends, register_backend

__version__ = _native.version
__all__ = ['ArgumentError', 'BreakError', 'Error', 'Graph', 'InternalError', 'OptionError', 'RecordError', 'Report',
           'cmake_prefix_path', 'compile', 'disable', 'explain', 'is_compiling', 'list_backends', 'record',
           'register_backend', 'reset', 'set_log', 'stats']

# For C++ programs: cmake -DCMAKE_PREFIX_PATH="$(python -c 'import smelt; print(smelt.cmake_prefix_path)')".
cmake_prefix_path = str(Path(__file__).parent / 'share' / 'cmake')


def stats():
    """What smelt has done in this process, as a dict of counters.

    Of smelt.compile: frames (calls of compiled functions), segments (pieces compiled), instructions (of Python,
    followed by traces), graph_breaks, recompiles, cache_hits, compile_seconds. Of graphs: graphs, refusals, nodes (ops written down), runs, ops_native, ops_fallback,
    kernels (made of native ops), arena_buffers (results with a place in their program's arena), arena_copies,
    shapes_row / shapes_meta / shapes_probe (where result types came from), record_ns and compile_ns.
    """
    counters = _native.counters()
    for name in ('frames', 'segments', 'instructions', 'graph_breaks', 'recompiles', 'cache_hits'):
        counters.setdefault(name, 0)
    return counters | {'compile_seconds': counters['compile_ns'] / 1e9}


def reset():
    """Sets the counters of stats() to zero and forgets what was compiled; compiled functions compile again when they
    are called."""
    forget_all()
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
