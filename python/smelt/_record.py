"""smelt.record: a function's tensor program, written down and run again."""
import dataclasses
import os
import sys

import torch

from . import _native, _symint, _tree
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
        structure = _tree.flatten((args, kwargs), tensors)
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


def record(fn, *args, dynamic_shapes=None, **kwargs):
    """Writes down every tensor op of fn(*args, **kwargs): forward, views and in-place code, backward, optimizer.

    The function runs once, on tensors without contents; nothing is computed, and the tensors it touches are as
    before when record() returns. Python code runs as always: prints print, lists grow, and numbers and branches
    are written down as they came. Tensors that fn reaches by itself (parameters, buffers, closures) are inputs that
    the graph reads at each run.

    dynamic_shapes: for each positional argument the dimensions whose size may change, {dim: name}, or None:
    ``record(model, x, dynamic_shapes=[{0: 'batch'}])``. Equal names mean equal sizes.

    Raises what fn raises; smelt.RecordError if fn can't be written down (its course depends on tensor contents, as
    in ``if x.sum() > 0``, say).
    """
    if not callable(fn):
        raise TypeError(f'smelt.record takes a function or a module and its arguments, not {type(fn).__name__}')
    tensors = []
    arguments = _tree.flatten((args, kwargs), tensors)
    dynamic = _dynamic_dims(args, arguments[0], dynamic_shapes, len(tensors))
    reach = Reach()
    reach.walk((args, kwargs, fn))
    known = [t for key, t in reach.tensors.items() if key not in {id(t) for t in tensors}]
    outputs = []

    def call():
        returned = []
        outputs.append(_tree.flatten(fn(*args, **kwargs), returned))
        return returned

    try:
        native = _native.record(call, tensors, dynamic, known, list(reach.generators.values()), _user_line, -1)
    except RecordError as error:
        raise _with_line(error) from error.__cause__
    return Graph(native, arguments, outputs[0])


def _dynamic_dims(args, structure, dynamic_shapes, count):
    """One {dim: name} per tensor from the user's one per positional argument."""
    dims = [{} for _ in range(count)]
    if dynamic_shapes is None:
        return dims
    if not isinstance(dynamic_shapes, (list, tuple)) or len(dynamic_shapes) > len(args):
        raise Error('dynamic_shapes is a list with one {dim: name} or None per positional argument, such as '
                    f"[{{0: 'batch'}}]; got {dynamic_shapes!r} for {len(args)} arguments")
    _symint.install()
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
            return _check_structure(vars(recorded), vars(given))
        if recorded is given or not isinstance(recorded, (list, tuple, dict)) and recorded == given:
            return
    raise Error(f'run() got {_shown(given)} where the graph was recorded with {_shown(recorded)}; record it again')


def _shown(value):
    return 'a tensor' if isinstance(value, _tree._Leaf) else repr(value)


_OWN = (os.path.dirname(torch.__file__), os.path.dirname(__file__))


def _user_frame(frame):
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return frame


def _user_line():
    """file:line of the user's code that is running now."""
    frame = _user_frame(sys._getframe(1))
    return f'{frame.f_code.co_filename}:{frame.f_lineno}' if frame else ''


def _with_line(error):
    """The error with the user's line that led to it, from the traceback of the exception behind it."""
    line, trace = '', error.__cause__.__traceback__ if error.__cause__ else error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_OWN):
            line = f'{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}'
        trace = trace.tb_next
    return RecordError(f'{error} (at {line})' if line else str(error))
