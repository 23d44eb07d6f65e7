"""options={'verify_every': n}: one call in n is checked against eager, and a function that is off goes back to eager."""
import inspect
import warnings

import torch

from .. import _stance, _tree
from .conditioning import spread_of
from .difference import compare
from .problems import one_line
from .state import NotYet, State, copy_of, is_plain
from .verify import Outcome


def check(compiled, args, kwargs):
    """In the place of a call of a CompiledFunction: the result of the call, eager's if the two differ.

    The function is called twice from one start: what it changes in tensors, modules, optimizers, containers and names that
    it can reach is put back in between. What it prints or writes elsewhere happens twice, and more often where the two differ:
    eager is then called again, as it was and with other roundings, to learn whether the function is repeatable and how sensitive. One
    that reaches what can't be put back is not checked.
    """
    every = compiled._settings.options['verify_every']
    compiled._watch(None, 0)
    given = args if compiled._bound is None else args[1:]
    try:
        try:
            state = State(compiled._function, args, kwargs)
        except NotYet:
            compiled._watch(check, every)  # the next one
            return compiled._function(*args, **kwargs)
        if state.lost:
            _not_checked(compiled, f'it can reach {state.lost[0]}, which can not be put back')
            return compiled(*given, **kwargs)
        result = compiled._function(*args, **kwargs)
        if advanced := state.advanced():
            _not_checked(compiled, f'it advances {advanced[0]}, which can not be put back')
            return result  # a call like any other
        eager = _outcome(result, state)
        state.restore()
        is_repeatable = True
        try:
            result = compiled(*given, **kwargs)
            found = _outcome(result, state)
            off = _first_off(found, eager, state.before())
            if off is not None:
                state.restore()
                again = _outcome(compiled._function(*args, **kwargs), state)
                is_repeatable = _first_off(again, eager, state.before()) is None
                state.restore()
            if off is not None and is_repeatable:
                spread = spread_of(compiled._function, args, kwargs, state, eager, with_gradients=False)
                off = _first_off(found, eager, state.before(), spread)
                result = compiled(*given, **kwargs) if off is None else None
        except Exception as error:  # eager has raised nothing
            off = f'it raised {one_line(error)}'
        if not is_repeatable:
            _not_checked(compiled, 'two eager calls from one start give different results')
            return compiled(*given, **kwargs)
        if off is None:
            compiled._watch(check, every)
            return result
        state.restore()
        _roll_back(compiled, off)
        return compiled._function(*args, **kwargs)
    except BaseException:
        compiled._watch(check, every)
        raise


def _not_checked(compiled, why):
    """Nor is any call from now on."""
    _warn(compiled, f'is not checked, though verify_every asks for it: {why}')


def _outcome(result, state):
    """Tensors as they are now, then the numbers and texts beside them; and what was changed."""
    tensors = []
    structure = _tree.flatten(result, tensors)
    return Outcome([*(copy_of(tensor) if is_plain(tensor) else tensor.detach() for tensor in tensors),
                    *_tree.values_of(structure)], {}, state.changed())


def _first_off(found, eager, before, spread=None):
    """What is off first, as a clause; None if nothing is."""
    if len(found.values) != len(eager.values):
        return f'it has {len(found.values)} values, and eager {len(eager.values)}'
    moves = spread.values if spread else [None] * len(found.values)
    rows = [compare(f'output {number}', one, other, None, move)
            for number, (one, other, move) in enumerate(zip(found.values, eager.values, moves))]
    for name in sorted(found.changed.keys() ^ eager.changed.keys()):
        if name not in before:
            return f'{name} is set {"in eager" if name in eager.changed else "compiled"} alone'
    rows += [compare(name, found.changed.get(name, before.get(name)), eager.changed.get(name, before.get(name)), None,
                     spread.changed.get(name) if spread else None) for name in {**eager.changed, **found.changed}]
    for row in rows:
        if not row.ok:
            return row.name + (f': {row.note}' if row.note else
                               f' is off by {row.max_abs:.3g} ({row.max_ulp:.0f} units in the last place)')
    return None


def _roll_back(compiled, off):
    _stance.taken_of(compiled).settle('eager')
    _warn(compiled, f'gave another result than eager: {off}. It is left to Python from now on; smelt.verify says what is wrong, and '
                    'smelt.stance("default", fn) switches it on again')


def _warn(compiled, text):
    name, function = compiled._function.__qualname__, compiled._function
    if isinstance(compiled._bound, torch.nn.Module):  # whose frame is one of PyTorch's
        name, function = type(compiled._bound).__name__, getattr(type(compiled._bound), 'forward', function)
    code = getattr(inspect.unwrap(function), '__code__', compiled._function.__code__)
    warnings.warn(f'smelt: {name} ({code.co_filename}:{code.co_firstlineno}) {text}.', RuntimeWarning, stacklevel=4)
