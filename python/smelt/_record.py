"""smelt.record: a function's tensor program, written down and run again."""
import dataclasses
import os
import sys

import torch

from . import _native, _self_test, _tree
from ._errors import Error, RecordError
from ._reach import Reach


class Graph:
    """A recorded tensor program.

    `print(graph)` shows it, one line per op. `graph.run(*args)` computes it for new arguments of the same shapes,
    with what the function changed in place changed as well.
    """

    def __init__(self, native, arguments, outputs):
        self._native = native
        self._arguments = arguments  # structure of (args, kwargs) with the places of tensors
        self._outputs = outputs      # structure of what the function returned

    def run(self, *args, **kwargs):
        """What the recorded function returns for these arguments.

        Tensors may change from call to call; everything else must be as it was recorded. Raises smelt.Error if an
        argument does not fit what was recorded.
        """
        tensors = []
        structure = _tree.flatten((args, dict(sorted(kwargs.items()))), tensors)
        _check_structure(self._arguments, structure)
        return _tree.unflatten(self._outputs, self._native.run(tensors))

    def explain(self):
        """What the passes did with the graph, and how long that took."""
        return self._native.explain()

    def program(self):
        """The steps that run() executes, as text."""
        return self._native.program()

    def __len__(self):
        """The number of ops."""
        return self._native.size()

    def __str__(self):
        return self._native.text()

    def __repr__(self):
        return f'<smelt.Graph of {len(self)} ops>'


def record(fn, *args, dynamic_shapes=None, backend='eager', **kwargs):
    """Writes down every tensor op of fn(*args, **kwargs): forward, views and in-place code, backward, optimizer.

    The function runs once, on tensors without contents; nothing is computed, and the tensors it touches are as
    before when record() returns. Python code runs as always: prints print, lists grow, and numbers and branches
    are written down as they came. Tensors that fn reaches by itself (parameters, buffers, closures) are inputs that
    the graph reads at each run.

    dynamic_shapes: for each positional argument the dimensions whose size may change, {dim: name}, or None:
    ``record(model, x, dynamic_shapes=[{0: 'batch'}])``. Equal names mean equal sizes.

    backend: 'eager' runs the ops as they were recorded, by PyTorch's kernels, bit for bit; 'native' compiles them to
    kernels of smelt's own, which change tensors in place where the function does.

    Raises what fn raises; smelt.RecordError if fn can't be written down (its course depends on tensor contents, as
    in ``if x.sum() > 0``, say).
    """
    return _record(fn, args, kwargs, dynamic_shapes, backend=backend)


def _record(fn, args, kwargs, dynamic_shapes=None, fail_at=-1, backend='eager'):
    """record(), with a failure injected at the fail_at-th op for tests."""
    if not callable(fn):
        raise TypeError(f'smelt.record takes a function or a module and its arguments, not {type(fn).__name__}')
    if _self_test.problems:
        raise RecordError(f'nothing can be recorded: {_self_test.describe()}')
    tensors = []
    arguments = _tree.flatten((args, dict(sorted(kwargs.items()))), tensors)
    dynamic = _dynamic_dims(args, arguments[0], dynamic_shapes, len(tensors))
    reach = Reach()
    reach.walk((args, kwargs, fn))
    passed = {id(t) for t in tensors}
    known = [t for key, t in reach.tensors.items() if key not in passed]
    outputs = []

    states = {id(o): {(p, name) for p, state in o.state.items() for name in state} for o in reach.optimizers}

    def call():
        returned = []
        outputs.append(_tree.flatten(fn(*args, **kwargs), returned))
        _refuse_new_state(reach.optimizers, states)
        return returned

    try:
        native = _native.record(call, tensors, dynamic, known, list(reach.generators.values()), _user_line, fail_at,
                                backend)
    except RecordError as error:
        raise _with_line(error) from error.__cause__
    return Graph(native, arguments, outputs[0])


def _refuse_new_state(optimizers, before):
    """State that an optimizer makes in its first step would be kept in the optimizer as tensors without contents."""
    made = [(state, name) for o in optimizers for p, state in o.state.items() for name, value in state.items()
            if isinstance(value, torch.Tensor) and (p, name) not in before[id(o)]]
    for state, name in made:
        del state[name]
    if made:
        raise RecordError('an optimizer made its state inside the recorded function, where tensors have no contents; '
                          'run one step eagerly before recording')


def _dynamic_dims(args, structure, dynamic_shapes, count):
    """One {dim: name} per tensor from the user's one per positional argument."""
    dims = [{} for _ in range(count)]
    if dynamic_shapes is None:
        return dims
    if not isinstance(dynamic_shapes, (list, tuple)) or len(dynamic_shapes) > len(args):
        raise Error('dynamic_shapes is a list with one {dim: name} or None per positional argument, such as '
                    f"[{{0: 'batch'}}]; got {dynamic_shapes!r} for {len(args)} arguments")
    for place, wanted in zip(structure, dynamic_shapes):
        if not wanted:
            continue
        if not isinstance(place, _tree._Leaf):
            raise Error('dynamic_shapes names dimensions of an argument that is not a tensor')
        dims[place.index] = {int(dim): str(name) for dim, name in wanted.items()}
    return dims


def _check_structure(recorded, given):
    """Everything but the tensors must be as it was recorded."""
    if isinstance(recorded, _tree._Leaf) and isinstance(given, _tree._Leaf):
        if recorded.index == given.index:
            return
    elif type(recorded) is type(given):
        if isinstance(recorded, (list, tuple)) and len(recorded) == len(given):
            for a, b in zip(recorded, given):
                _check_structure(a, b)
            return
        if isinstance(recorded, dict) and list(recorded) == list(given):
            for key in recorded:
                _check_structure(recorded[key], given[key])
            return
        if dataclasses.is_dataclass(recorded) and not isinstance(recorded, type):
            return _check_structure(*({f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
                                      for value in (recorded, given)))
        if recorded is given or not isinstance(recorded, (list, tuple, dict)) and recorded == given:
            return
    raise Error(f'run() got {given!r} where the graph was recorded with {recorded!r}; record it again')


_TORCH = os.path.dirname(torch.__file__)
_OWN = (_TORCH, os.path.dirname(__file__), '<')
_LIBRARY = os.path.dirname(os.__file__)


def _is_users(code):
    """Not torch's, smelt's or Python's own; packages that are installed count as the user's."""
    name = code.co_filename
    return not name.startswith(_OWN) and (not name.startswith(_LIBRARY) or 'site-packages' in name)


def _user_frame(frame):
    while frame is not None and not _is_users(frame.f_code):
        frame = frame.f_back
    return frame


def _user_line():
    """file:line of the user's code that is running now."""
    frame = _user_frame(sys._getframe(1))
    return f'{frame.f_code.co_filename}:{frame.f_lineno}' if frame else ''


def _with_line(error):
    """The error with the user's line that led to it, from the traceback of the exception behind it.

    PyTorch's own frames are emptied, the innermost first: some keep a dispatch guard in a local variable (printing
    does), which a traceback would keep in force, and destroy in an order that leaves it on.
    """
    line, trace = '', error.__cause__.__traceback__ if error.__cause__ else error.__traceback__
    torch_frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if _is_users(code):
            line = f'{code.co_filename}:{trace.tb_lineno}'
        elif code.co_filename.startswith(_TORCH):
            torch_frames.append(trace.tb_frame)
        trace = trace.tb_next
    while torch_frames:
        torch_frames.pop().clear()
    return RecordError(f'{error} (at {line})' if line else str(error))
