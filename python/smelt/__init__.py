"""smelt: a native compiler for PyTorch programs.

    import smelt

    model = smelt.compile(model)      # or @smelt.compile on a function
    print(smelt.explain(fn)(*args))   # what was compiled, where graphs break and why

    graph = smelt.record(fn, *args)   # every tensor op of fn(*args), written down
    print(graph)                      # as text, one line per op
    graph.run(*args)                  # run it again, without Python
"""
from pathlib import Path

from . import _environment

_environment.check()

from . import _accelerate, _logger, _native, _self_test
from ._compile import compile, disable, forget_all, is_compiling
from ._errors import ArgumentError, BreakError, Error, InternalError, OptionError, RecompileError, RecordError, SizeError
from ._explain import explain
from ._record import Graph, record
from ._settings import list_backends, register_backend
from ._sizes import mark_dynamic, mark_static
from ._stance import stance

_self_test.run()

__version__ = _native.version
__all__ = ['ArgumentError', 'BreakError', 'Error', 'Graph', 'InternalError', 'OptionError', 'RecompileError', 'RecordError', 'SizeError',
           'Report', 'cmake_prefix_path', 'compile', 'disable', 'explain', 'is_compiling', 'list_backends', 'mark_dynamic',
           'mark_static', 'record',
           'register_backend', 'reset', 'set_log', 'stance', 'stats', 'verify', 'warmup']

# For C++ programs: cmake -DCMAKE_PREFIX_PATH="$(python -c 'import smelt; print(smelt.cmake_prefix_path)')".
cmake_prefix_path = str(Path(__file__).parent / 'share' / 'cmake')


# What functions return: for annotations and isinstance. Their modules are loaded when they are asked for.
_RESULTS = {'Report': '_report', 'Segment': '_report', 'Break': '_report', 'Stance': '_stance', 'WarmUp': 'instruments.warm_up',
           'Verification': 'instruments.verify', 'Difference': 'instruments.difference', 'Culprit': 'instruments.narrow'}


def __getattr__(name):
    if name in _RESULTS:
        from importlib import import_module
        return getattr(import_module(f'{__name__}.{_RESULTS[name]}'), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def stats():
    """What smelt has done in this process, as a dict of counters.

    Of smelt.compile: frames (calls of compiled functions), segments (pieces compiled), instructions (of Python,
    followed by traces), graph_breaks, recompiles, cache_hits, compile_seconds. Of graphs: graphs, refusals, nodes (ops written down), runs, ops_native, ops_fallback,
    kernels (made of native ops), own_sizes (programs for sizes that come again), arena_buffers (results with a place in their program's arena), arena_copies,
    shapes_row / shapes_meta / shapes_seen (where result types came from), record_ns and compile_ns.
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


def set_log(categories, logger=None):
    """Switches logging on, as the environment variable SMELT_LOG does: 'graph,passes', 'all' or ''.

    logger: a logging.Logger that gets the lines, at level INFO, under a child named as the category; a thread hands them
    on, shortly after they are written. None: they go to standard error.
    """
    _logger.stop()
    _native.set_log(categories)
    if logger is not None:
        _logger.start(logger)


def verify(fn, /, *args, **kwargs):
    """Calls fn(*args, **kwargs) compiled, in eager and in fp64, and compares: what it returns, the gradients, and the
    tensors that it changes. Nothing is changed by that.

    The result is true where compiled and eager agree; print() shows the largest absolute and relative differences and
    those in units of the last place. After a mismatch it names the part of the compiler and the ops, and a script that
    shows it. A function that is compiled is verified with its own settings.
    """
    from .instruments.verify import verify as run
    return run(fn, *args, **kwargs)


def warmup(fn, inputs, *, backward=False):
    """Compiles ahead: calls `fn`, which smelt.compile returned, with each of the inputs, until that compiles nothing.

    inputs: a list; each is a tuple of arguments, a dict of keyword arguments, or one tensor. backward: also runs the
    backward pass. Parameters, buffers, gradients, optimizer state and random generators are as before afterwards.
    """
    from .instruments.warm_up import warmup as run
    return run(fn, inputs, backward)


_accelerate.add_name()
