"""smelt.warmup: compiles ahead of the first request."""
import contextlib
import dataclasses

import torch

from .. import _compile, _native
from .._errors import ArgumentError
from . import terminal
from .state import State

_MOST_CALLS = 4  # of one input: the first compiles, later ones find variants (the second step of an optimizer, say)


@dataclasses.dataclass
class WarmUp:
    """What warmup() came to: calls that compile nothing any more, and those that still do."""

    inputs: int
    segments: int
    seconds: float
    not_compiled: list  # numbers of inputs whose last call ran nothing compiled


def warmup(fn, inputs, backward):
    if _compile.native_of(fn) is None and not _compile.is_off() and not any(
            _compile.native_of(part) for part in getattr(fn, 'modules', lambda: ())()):
        raise ArgumentError('smelt.warmup takes what smelt.compile returned, or a module with such parts')
    inputs = list(inputs)
    start = _native.counters()
    missed = []
    with terminal.progress('compiling', len(inputs)) as told, _ahead(fn):
        for number, given in enumerate(inputs):
            args, kwargs = _arguments(given)
            state = State(_compile.original_of(fn), args, kwargs)
            try:
                if not _calls(fn, args, kwargs, state, backward):
                    missed.append(number)
            finally:
                state.restore()
            told(number + 1)
    now = _native.counters()
    return WarmUp(len(inputs), now['segments'] - start['segments'], (now['compile_ns'] - start['compile_ns']) / 1e9, missed)


@contextlib.contextmanager
def _ahead(fn):
    """What is asked for is compiled, whatever it costs."""
    parts = [fn, *(fn.modules() if isinstance(fn, torch.nn.Module) else ())]
    natives = [native for native in map(_compile.native_of, parts) if native is not None]
    for native in natives:
        native._set_ahead(True)
    try:
        yield
    finally:
        for native in natives:
            native._set_ahead(False)


def _arguments(given):
    if isinstance(given, dict):
        return (), given
    return (tuple(given) if isinstance(given, (tuple, list)) else (given,)), {}


def _calls(fn, args, kwargs, state, backward):
    """Until a call compiles nothing; whether that one ran something compiled."""
    from .contestants import users_code
    for _ in range(_MOST_CALLS):
        before = _native.counters()
        result = fn(*args, **kwargs)
        if backward:
            users_code()['mean_of_squares'](result).backward()
        now = _native.counters()
        if now['segments'] == before['segments'] and now['graphs'] == before['graphs']:
            return now['cache_hits'] > before['cache_hits']
    return True
